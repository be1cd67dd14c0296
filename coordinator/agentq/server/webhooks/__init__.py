"""Delivering to webhooks."""
