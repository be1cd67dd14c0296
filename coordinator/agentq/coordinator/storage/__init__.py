"""Redis: connections, keys, scripts and how they are called."""
