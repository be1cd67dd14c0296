"""Metrics and the events counted for them."""
