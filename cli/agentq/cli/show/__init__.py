"""Formats runs, sessions, costs and workers for people."""
