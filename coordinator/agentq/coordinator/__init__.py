"""The truth about every run: its lifecycle, its storage in Redis, the verbs that change it, and the duties of time."""
