"""Processes: starting, watching and ending a tree of them."""
