"""Accounts of agents: limits, when they reset, which fault is whose."""
