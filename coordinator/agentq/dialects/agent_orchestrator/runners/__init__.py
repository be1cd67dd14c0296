"""Runners of the dialect: registration, polls, reports, stops."""
