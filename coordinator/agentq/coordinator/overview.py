"""What stands in each queue, how long it has stood there, and how fast it comes and goes. Reading only.

Rates are counted from the events of the last minute, or of the newest so many if there were more: nothing is written
for them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from agentq.coordinator.flow import EVERY_QUEUE, Flow, Pause
from agentq.coordinator.identity import created_ms
from agentq.coordinator.lifecycle import State
from agentq.coordinator.records import Records
from agentq.coordinator.store import Store

RATE_MS = 60_000
EVENTS_LOOKED_AT = 2000


@dataclass(slots=True)
class QueueRecord:
    """One queue."""

    queue: str
    counts: dict[State, int] = field(default_factory=dict)
    oldest_ms: int | None = None
    """When the oldest run that is pending was submitted."""
    submitted_a_minute: float = 0
    ended_a_minute: float = 0
    paused: Pause | None = None
    drained: Pause | None = None


class Overview:
    """All queues of a namespace."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.flow = Flow(store)
        self.records = Records(store)

    def queues(self) -> list[QueueRecord]:
        """Every queue that has a run, or was told something."""
        paused, drained, counts = self.flow.paused(), self.flow.drained(), self.records.count()
        names = {*counts, *paused, *drained} - {EVERY_QUEUE}
        found = {name: QueueRecord(name, counts.get(name, {})) for name in sorted(names)}
        for name, record in found.items():
            record.paused = paused.get(name) or paused.get(EVERY_QUEUE)
            record.drained = drained.get(name)
            record.oldest_ms = self._oldest(name) if record.counts.get(State.PENDING) else None
        for partition in self.store.partitions():
            self._add_rates(partition, found)
        return list(found.values())

    def _oldest(self, queue: str) -> int | None:
        """Indexes are in the order of ids, which begin with the time."""
        times: list[int] = []
        for partition in self.store.partitions():
            key = self.store.key(partition, "index", queue, State.PENDING.value)
            times += map(created_ms, self.store.connection.command("ZRANGE", key, 0, 0))
        return min(times, default=None)

    def _add_rates(self, partition: int, found: dict[str, QueueRecord]) -> None:
        window_ms, *flat = self.store.call("rates", partition, RATE_MS, EVENTS_LOOKED_AT)
        for at in range(0, len(flat), 3):
            queue, submitted, ended = flat[at : at + 3]
            if queue in found:
                found[queue].submitted_a_minute += submitted * 60_000 / window_ms
                found[queue].ended_a_minute += ended * 60_000 / window_ms
