"""Converts task lists in Markdown and JSON lines to plans and back."""
