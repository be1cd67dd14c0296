"""Workspaces: the worktrees that runs work in, and what becomes of the work."""
