"""Schedules: records, verbs and the computation of ticks."""
