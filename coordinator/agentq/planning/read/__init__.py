"""Reading plan files, YAML and JSON, with the place of each value."""
