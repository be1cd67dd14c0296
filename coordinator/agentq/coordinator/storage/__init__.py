"""Redis: connections, keys, scripts and their calls."""
