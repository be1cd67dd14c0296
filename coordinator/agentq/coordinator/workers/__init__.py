"""The worker's side of the store: its lease, its claims, its orders."""
