"""Tokens, their revocation, and the redaction of secrets."""
