"""Coding agents: how each is started, read, judged and resumed."""
