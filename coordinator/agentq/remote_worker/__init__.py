"""Lets a worker use a coordinator over a WebSocket, where it cannot or should not reach Redis itself."""
