"""Queues and limits: pausing, purging, weights, concurrency and rate limits."""
