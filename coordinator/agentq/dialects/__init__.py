"""Protocols of other systems that the server speaks beside its own."""
