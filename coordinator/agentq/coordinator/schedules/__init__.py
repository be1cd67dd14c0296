"""Schedules: what makes runs by the clock."""
