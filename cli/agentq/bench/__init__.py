"""Benchmarks: what `agentq bench` measures."""
