"""Blueprints, capabilities, scripts and tool servers of the other system."""
