"""The worker: claims runs, executes them on this machine and reports the outcomes."""
