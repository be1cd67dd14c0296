"""Plans on the command line: reading, running, watching, summing up."""
