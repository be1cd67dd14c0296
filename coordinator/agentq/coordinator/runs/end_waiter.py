"""Waits for runs to end without polling: one reader per partition serves any number of waiting threads.

The order of things is what makes it safe: note the place in the stream of events, enter the wait, and only then look at
the run. Whatever ends after the look is an event after the place.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Protocol, TypeVar

from agentq.coordinator.clock import monotonic_ms
from agentq.coordinator.errors import AgentqError, TryLater, Unreachable, WaitTimedOut
from agentq.coordinator.events.stream import EVENT_ENTRIES_PER_READ, PartitionEvents
from agentq.coordinator.model.ids import partition_of
from agentq.coordinator.model.lifecycle import TERMINAL_STATES
from agentq.coordinator.runs.queries import RunQueries
from agentq.coordinator.runs.run_record import RunRecord
from agentq.coordinator.storage.store import NamespaceStore

T = TypeVar("T")
FOLLOW_BLOCK_MS = 5000
OUTAGE_DELAY_MS_MAX = 1000
"""The longest delay before the next try of an unreachable server."""


class WakeFlag(Protocol):
    """A flag that is set when a run may have ended, such as a `threading.Event`."""

    def set(self) -> None: ...


class RunEndWaiter:
    """Waits for runs to end."""

    def __init__(self, store: NamespaceStore) -> None:
        self.store = store
        self.records = RunQueries(store)
        self._lock = threading.Lock()
        self._readers: dict[int, _EventReader] = {}

    def wait(self, run_id: str, timeout_ms: int | None = None) -> RunRecord:
        """The run, once it has ended."""
        return self.wait_all([run_id], timeout_ms)[0]

    def wait_all(self, run_ids: Iterable[str], timeout_ms: int | None = None) -> list[RunRecord]:
        """The runs, once all have ended."""
        ids = list(run_ids)
        deadline = None if timeout_ms is None else monotonic_ms() + timeout_ms
        bells = [threading.Event() for _ in ids]
        for run_id, bell in zip(ids, bells, strict=True):
            self.enter(run_id, bell)
        try:
            return [self._ended(run_id, bell, deadline) for run_id, bell in zip(ids, bells, strict=True)]
        finally:
            for run_id, bell in zip(ids, bells, strict=True):
                self.leave(run_id, bell)

    def enter(self, run_id: str, bell: WakeFlag) -> None:
        """Set `bell` from now on whenever a run should be read again."""
        self._reader(partition_of(run_id)).enter(run_id, bell)

    def leave(self, run_id: str, bell: WakeFlag) -> None:
        """Stop setting it."""
        reader = self._readers.get(partition_of(run_id))
        if reader is not None:
            reader.leave(run_id, bell)

    def wait_for(
        self, name: str, partition: int, look: Callable[[], tuple[T | None, str]], timeout_ms: int | None
    ) -> T:
        """The result of `look`, called again whenever the named runs may have ended; else the present state."""
        bell, reader = threading.Event(), self._reader(partition)
        reader.enter(name, bell)
        try:
            return _poll_until_found(name, look, bell, None if timeout_ms is None else monotonic_ms() + timeout_ms)
        finally:
            reader.leave(name, bell)

    def _ended(self, run_id: str, bell: threading.Event, deadline: int | None) -> RunRecord:
        def look() -> tuple[RunRecord | None, str]:
            run = self.records.get(run_id)
            return run if run.state in TERMINAL_STATES else None, f"{run.state}{': ' if run.reason else ''}{run.reason}"

        return _poll_until_found(f"run {run_id}", look, bell, deadline)

    def _reader(self, partition: int) -> _EventReader:
        with self._lock:
            if partition not in self._readers:
                self._readers[partition] = _EventReader(PartitionEvents(self.store, partition))
            return self._readers[partition]

    def close(self) -> None:
        """End the readers; no waits may follow."""
        with self._lock:
            for reader in self._readers.values():
                reader.stop()
            self._readers.clear()


def _poll_until_found(
    subject: str, look: Callable[[], tuple[T | None, str]], bell: threading.Event, deadline: int | None
) -> T:
    """Look again whenever the flag is set, through outages, until something is found."""
    state = "unknown, its server out of reach"
    while True:
        pause_ms: int | None = None
        try:
            found, state = look()
            if found is not None:
                return found
        except (Unreachable, TryLater):
            pause_ms = OUTAGE_DELAY_MS_MAX
        left_ms = None if deadline is None else deadline - monotonic_ms()
        if left_ms is not None and left_ms <= 0:
            raise WaitTimedOut(f"The {subject} has not ended in time; it is {state}.")
        times = [ms for ms in (left_ms, pause_ms) if ms is not None]
        bell.wait(min(times) / 1000 if times else None)
        bell.clear()


class _EventReader(threading.Thread):
    """Follows one partition and sets the flags of runs that end."""

    def __init__(self, events: PartitionEvents) -> None:
        super().__init__(name="agentq-run-ends", daemon=True)
        self._events = events
        self._after = events.last_id()
        self._strayed = False
        self._lock = threading.Lock()
        self._bells: dict[str, list[WakeFlag]] = {}
        self._stopped = threading.Event()
        self.start()

    def enter(self, run_id: str, bell: WakeFlag) -> None:
        with self._lock:
            self._bells.setdefault(run_id, []).append(bell)

    def leave(self, run_id: str, bell: WakeFlag) -> None:
        with self._lock:
            self._bells[run_id].remove(bell)
            if not self._bells[run_id]:
                del self._bells[run_id]

    def stop(self) -> None:
        self._stopped.set()
        self._events.interrupt()
        self.join()

    def run(self) -> None:
        while not self._stopped.is_set():
            try:
                if self._strayed:
                    self._come_back()
                self._read()
            except AgentqError:
                # No events arrive while the link is broken: the waiting threads read for themselves.
                self._strayed = True
                self._ring(None)
                self._stopped.wait(random.uniform(0, OUTAGE_DELAY_MS_MAX / 1000))
        self._events.close()

    def _come_back(self) -> None:
        """Start again, in the safe order: events may be gone, or the server may be behind its old position."""
        self._after = self._events.last_id()
        self._strayed = False
        self._ring(None)

    def _read(self) -> None:
        events = self._events.follow(self._after, FOLLOW_BLOCK_MS)
        if len(events) >= EVENT_ENTRIES_PER_READ and self._events.missed(self._after):
            self._ring(None)
        for event in events:
            if event.state in TERMINAL_STATES:
                self._ring(event.run or f"plan {event.plan}")
            self._after = event.id

    def _ring(self, run_id: str | None) -> None:
        with self._lock:
            bells = list(self._bells.values()) if run_id is None else [self._bells.get(run_id, [])]
        for bell in chain.from_iterable(bells):
            bell.set()
