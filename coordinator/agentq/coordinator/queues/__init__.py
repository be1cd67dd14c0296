"""Queues and limits: pausing, purging, weights, room under a key."""
