"""Agents that speak the Agent Client Protocol, run through a bridge program of agentq."""
