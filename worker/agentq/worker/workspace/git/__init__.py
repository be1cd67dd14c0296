"""Git, called safely on untrusted repositories."""
