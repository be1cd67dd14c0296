"""The output of a process: sanitized, redacted, bounded."""
