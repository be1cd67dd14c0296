"""Sessions: conversations with an agent, of which each run is a turn."""
