"""Explains why a run waits."""
