"""Git, called safely on repositories that are not ours."""
