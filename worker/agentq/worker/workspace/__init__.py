"""Workspaces: the worktrees that runs work in, and the delivery of their work."""
