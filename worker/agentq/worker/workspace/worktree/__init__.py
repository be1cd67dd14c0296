"""The worktree of an attempt: made, filled, reused, released."""
