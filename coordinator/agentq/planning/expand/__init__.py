"""Expands a plan file into tasks: includes, variables, matrices, defaults."""
