"""What a running program may ask: the agent's socket and the result channel."""
