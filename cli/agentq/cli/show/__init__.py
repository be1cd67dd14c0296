"""What is shown of runs, sessions, costs and workers."""
