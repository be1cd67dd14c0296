"""Who asks, and what they may."""
