"""Profiles: how an agent's program is started and read."""
