"""Reads the events of a plan from now on. Events only notify; the records of the tasks are authoritative."""

from __future__ import annotations

from agentq.coordinator.events.stream import Event, PartitionEvents
from agentq.coordinator.storage.store import NamespaceStore


class PlanEventReader:
    """The events of the partition of a plan, those of other runs among them. Not thread-safe."""

    def __init__(self, store: NamespaceStore, partition: int) -> None:
        self._events = PartitionEvents(store, partition)
        self.skip()

    def skip(self) -> None:
        """Pass over what has happened up to now: the caller is about to read all tasks."""
        self._after = self._events.last_id()

    def read(self, wait_ms: int) -> list[Event] | None:
        """What has happened since the last call; waits for something to happen. None if some of it is lost."""
        if self._events.missed(self._after):
            return None
        found = self._events.follow(self._after, wait_ms)
        if found:
            self._after = found[-1].id
        return found

    def close(self) -> None:
        self._events.close()
