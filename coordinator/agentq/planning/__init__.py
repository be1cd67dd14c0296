"""Compiles plan files into the specs of runs. See README.md."""
