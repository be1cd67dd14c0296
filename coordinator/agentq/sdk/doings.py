"""What an agent does, as `Run.doings` tells it: `match doing: case Said(): …`."""

from agentq.coordinator.doings import (
    AnyDoing,
    Began,
    Called,
    Changed,
    Concluded,
    Denied,
    Held,
    Limited,
    Other,
    Planned,
    Returned,
    Said,
    Sleeps,
    Spent,
    Thought,
    Turned,
)

__all__ = [
    "AnyDoing",
    "Began",
    "Called",
    "Changed",
    "Concluded",
    "Denied",
    "Held",
    "Limited",
    "Other",
    "Planned",
    "Returned",
    "Said",
    "Sleeps",
    "Spent",
    "Thought",
    "Turned",
]
