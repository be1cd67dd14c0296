"""Functions as runs: signatures, arguments and results."""
