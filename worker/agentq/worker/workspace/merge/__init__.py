"""From a finished worktree to the target: commit, stack, check, merge."""
