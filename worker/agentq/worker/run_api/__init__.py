"""What a running program can ask of agentq: the agent socket and the result channel."""
