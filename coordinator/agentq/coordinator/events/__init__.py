"""The event stream, and its filters."""
