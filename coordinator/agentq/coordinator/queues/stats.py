"""What stands in each queue, how long it has stood there, and how fast it comes and goes. Reading only.

Rates are counted from the events of the last minute, or of the newest so many if there were more: nothing is written
for them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from agentq.coordinator.model.ids import id_created_ms
from agentq.coordinator.model.lifecycle import State
from agentq.coordinator.queues.controls import ALL_QUEUES, QueueControls, QueuePause
from agentq.coordinator.runs.queries import RunQueries
from agentq.coordinator.storage.store import NamespaceStore

RATE_WINDOW_MS = 60_000
RATE_EVENTS_MAX = 2000


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


class QueueStatsReader:
    """All queues of a namespace."""

    def __init__(self, store: NamespaceStore) -> None:
        self.store = store
        self.flow = QueueControls(store)
        self.records = RunQueries(store)

    def queues(self) -> list[QueueStats]:
        """Every queue that has a run, or was told something."""
        return self._look(self._names())

    def page(self, limit: int, cursor: str | None = None, only: Collection[str] = ()) -> QueueStatsPage:
        """So many of them, by name; `only` of these, if any are named."""
        names = [name for name in self._names() if name > (cursor or "") and (not only or name in only)]
        return QueueStatsPage(self._look(names[:limit]), names[limit - 1] if len(names) > limit else None)

    def queue(self, name: str) -> QueueStats | None:
        """One queue; None if it has no run and was told nothing."""
        return next(iter(self._look([name])), None)

    def _names(self) -> list[str]:
        return sorted({*self.records.queues(), *self.flow.paused(), *self.flow.drained()} - {ALL_QUEUES})

    def _look(self, names: Sequence[str]) -> list[QueueStats]:
        found = {name: QueueStats(name) for name in names}
        for name, state, number, oldest in self.records.depths(names):
            found[name].counts[state] = found[name].counts.get(state, 0) + number
            if state is State.PENDING:
                found[name].note(id_created_ms(oldest))
        paused, drained = self.flow.paused(), self.flow.drained()
        told = {name: record for name, record in found.items() if record.counts or name in paused or name in drained}
        for name, record in told.items():
            record.paused = paused.get(name) or paused.get(ALL_QUEUES)
            record.drained = drained.get(name)
        for partition in self.store.partitions():
            self._add_rates(partition, told)
        return list(told.values())

    def _add_rates(self, partition: int, found: dict[str, QueueStats]) -> None:
        window_ms, *flat = self.store.call("queue/get_rates", partition, RATE_WINDOW_MS, RATE_EVENTS_MAX)
        for at in range(0, len(flat), 3):
            queue, submitted, ended = flat[at : at + 3]
            if queue in found:
                found[queue].submitted_a_minute += submitted * 60_000 / window_ms
                found[queue].ended_a_minute += ended * 60_000 / window_ms
