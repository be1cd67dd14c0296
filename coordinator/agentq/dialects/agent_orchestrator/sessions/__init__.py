"""Sessions in the formats of the dialects."""
