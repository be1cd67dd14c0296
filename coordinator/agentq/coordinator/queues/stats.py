"""Statistics of a queue."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from agentq.coordinator.model.lifecycle import State


@dataclass(frozen=True, slots=True)
class QueuePause:
    """Since when nothing is claimed from a queue, and why."""

    queue: str
    at_ms: int
    why: str


@dataclass(slots=True)
class QueueStats:
    """One queue."""

    queue: str
    counts: dict[State, int] = field(default_factory=dict)
    oldest_ms: int | None = None
    """When the oldest run that is pending was submitted."""
    submitted_a_minute: float = 0
    ended_a_minute: float = 0
    paused: QueuePause | None = None
    drained: QueuePause | None = None

    def note(self, oldest_ms: int) -> None:
        """A run that is pending was submitted then."""
        self.oldest_ms = oldest_ms if self.oldest_ms is None else min(self.oldest_ms, oldest_ms)

    def add(self, other: QueueStats) -> None:
        """Count the runs of another queue as well."""
        for state, number in other.counts.items():
            self.counts[state] = self.counts.get(state, 0) + number
        if other.oldest_ms is not None:
            self.note(other.oldest_ms)


class QueueStatsPage(NamedTuple):
    """Part of a list. With `cursor` the next call goes on; without one, this was all."""

    queues: list[QueueStats]
    cursor: str | None
