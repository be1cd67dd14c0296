"""One machine's share of the work."""
