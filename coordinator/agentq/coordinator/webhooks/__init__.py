"""Webhooks: who is told of events over HTTP, and how each delivery is signed and tried again."""
