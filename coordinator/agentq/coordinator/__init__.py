"""The library that stores runs, changes their state, and performs the periodic duties."""
