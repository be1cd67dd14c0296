"""Connections, bodies, problems, time limits and the fast path."""
