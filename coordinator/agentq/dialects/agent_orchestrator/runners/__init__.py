"""Runners of the other system: registering, polling, reporting, stopping."""
