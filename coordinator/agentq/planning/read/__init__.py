"""Reads plan files in YAML and JSON, with the position of each value."""
