"""Adopts RQ's queues: their jobs run in lanes of agentq."""
