"""The periodic duties. Each does one bounded round in `run_once` and returns when the next one is due."""
