"""The worktree of an attempt: made, furnished, reused, released."""
