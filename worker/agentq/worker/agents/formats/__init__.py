"""One file for each language that agents speak on stdout."""
