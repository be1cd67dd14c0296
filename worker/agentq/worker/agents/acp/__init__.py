"""Agents that speak the Agent Client Protocol: a program of ours stands between one of them and the run."""
