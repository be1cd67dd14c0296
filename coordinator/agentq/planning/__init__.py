"""Plans: from a file that somebody writes to the specs of runs. See README.md."""
