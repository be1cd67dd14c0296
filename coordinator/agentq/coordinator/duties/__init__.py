"""What time imposes. Each duty does one bounded round in `run_once` and says when the next can matter."""
