"""Readers for the output formats of agents, one file each."""
