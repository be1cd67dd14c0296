"""HTTP: connections, bodies, errors, limits, and the fast path."""
