"""Why a run waits, and what state a namespace is in."""
