"""Data types that need no server: ids, the lifecycle, specs of runs, demands, retries."""
