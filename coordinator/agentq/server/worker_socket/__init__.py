"""The server side of the WebSocket of remote workers."""
