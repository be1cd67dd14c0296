"""What a process writes: cleaned, redacted, kept in bounds."""
