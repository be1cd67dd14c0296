"""The program inside a child process that calls functions."""
