"""What a worker reports of its attempts: outcomes, logs, progress, spending."""
