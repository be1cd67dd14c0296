"""What runs inside a child process that calls functions."""
