"""Task lists of other tools, read as plans."""
