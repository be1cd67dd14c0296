"""Tokens, what they made, and secrets kept out of what is shown."""
