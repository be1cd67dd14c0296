"""Protocols of other systems, each a plug-in of the server."""
