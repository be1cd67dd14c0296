"""The WebSocket of remote workers, on the side of the server."""
