"""What is known without a server: ids, the lifecycle, specs of runs, demands, retries."""
