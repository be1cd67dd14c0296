"""A worker's way to the server through the coordinator, where it cannot or should not reach Redis itself."""
