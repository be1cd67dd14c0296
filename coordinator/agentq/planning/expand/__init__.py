"""From what a plan file says to its tasks: includes, fields, matrices, defaults."""
