"""What a worker says to the store: its lease, its claims, its orders."""
