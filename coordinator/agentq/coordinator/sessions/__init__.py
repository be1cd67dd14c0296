"""Sessions: conversations with an agent; each run of one is a turn."""
