"""The stream of events, and who follows it."""
