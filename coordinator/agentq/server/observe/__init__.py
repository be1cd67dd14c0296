"""Metrics, health and log lines of the server."""
