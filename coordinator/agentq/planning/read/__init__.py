"""Reading plan files: YAML, Markdown, JSON, Python."""
