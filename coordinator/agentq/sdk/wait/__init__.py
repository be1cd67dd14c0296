"""Waiting for runs and following their events."""
