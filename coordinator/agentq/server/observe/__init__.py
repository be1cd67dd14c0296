"""Metrics, and what counts events for them."""
