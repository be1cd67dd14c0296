"""Event fan-out to waiting requests: one reader thread per partition follows the stream and notifies watches.

Any number of waits, for runs, plans or all events, share one connection and one thread per partition; a watch is a few
objects on the event loop. The safe order is: begin to watch, then read, then wait. Any event after the read notifies
the watch.

During an outage of the store nothing is notified. Afterwards all watches are notified once to read again, since events
may have been lost.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from agentq.coordinator.clock import monotonic_ms
from agentq.coordinator.errors import AgentqError, TryLater
from agentq.coordinator.events.stream import EVENT_ENTRIES_PER_READ, STREAM_START, Event, PartitionEvents
from agentq.coordinator.storage.connection import Connection
from agentq.coordinator.storage.store import NamespaceStore

BLOCK_MS = 5000
OUTAGE_PAUSE_MS = 1000
"""The longest pause before the next try to read from a store that was out of reach."""
WATCH_CAPACITY = 64
"""Queued events of a watch, by default."""
WATCHES_MAX = 20_000
BURST_MS = 10
BURST_WINDOW_S = 0.003
"""During a burst, events within this time are sent together; a single event is sent at once."""
LOOP_ACK_TIMEOUT_S = 30.0
"""How long a reader waits for the loop to handle a batch before it reads the next one."""


@dataclass(frozen=True, slots=True)
class WatchedEvents:
    """Events of a watch. With `missed` there were more than these: read everything again."""

    events: list[Event] = field(default_factory=list)
    missed: bool = False

    def __bool__(self) -> bool:
        return bool(self.events) or self.missed


class EventWatch:
    """One wait for events, with a bounded queue."""

    __slots__ = ("_capacity", "_events", "_hub", "_missed", "_wakeup")

    def __init__(self, hub: EventHub, capacity: int) -> None:
        self._hub = hub
        self._capacity = capacity
        self._events: deque[Event] = deque()
        self._missed = False
        self._wakeup: asyncio.Future[None] | None = None

    async def next(self, timeout_s: float, *others: asyncio.Future[Any]) -> WatchedEvents:
        """The events since the last call, or the first ones within `timeout_s`; empty after that, or when the server
        stops.

        `others` end the wait as well, such as the future of a disconnect.
        """
        if not (self._events or self._missed or self._hub.closing or any(other.done() for other in others)):
            self._wakeup = asyncio.get_running_loop().create_future()
            try:
                await asyncio.wait(
                    {self._wakeup, *others}, timeout=max(0.0, timeout_s), return_when=asyncio.FIRST_COMPLETED
                )
            finally:
                self._wakeup = None
        batch = WatchedEvents(list(self._events), self._missed)
        self._events.clear()
        self._missed = False
        return batch

    def notify(self, event: Event | None = None) -> None:
        """Queue an event; without one, mark events as missed."""
        if event is None or len(self._events) >= self._capacity:
            self._missed = True
            self._events.clear()
        elif not self._missed:
            self._events.append(event)
        self.wake()

    def wake(self) -> None:
        """End the current wait."""
        if self._wakeup is not None and not self._wakeup.done():
            self._wakeup.set_result(None)


class EventHub:
    """The watches of this process. Use it on the server's loop only."""

    def __init__(self, store: NamespaceStore) -> None:
        self.store = store
        self.closing = False
        """The server stops: waits end at once, and their requests are answered with the current state."""
        self.on_duty_wakeup: Callable[[], None] = lambda: None
        """Called in a reader's thread when a duty is due earlier than planned."""
        self._runs: dict[str, list[EventWatch]] = {}
        self._all: list[EventWatch] = []
        self._readers: list[_EventReader] = []

    def start(self) -> None:
        """Start the readers."""
        loop = asyncio.get_running_loop()
        self._readers = [
            _EventReader(self, PartitionEvents(self.store, each), loop) for each in self.store.partitions()
        ]
        for reader in self._readers:
            reader.start()

    def close(self) -> None:
        """End all waits, now and in future."""
        self.closing = True
        for watch in self._list_watches():
            watch.wake()

    def stop(self) -> None:
        """Stop the readers. Blocks, so do not call it on the loop."""
        for reader in self._readers:
            reader.stop()

    @property
    def watch_count(self) -> int:
        """The number of waits."""
        return sum(1 for _ in self._list_watches())

    def longest_silence_ms(self) -> int:
        """The time since the least recent read of a reader; some seconds in a working server."""
        return max((monotonic_ms() - reader.read_at_ms for reader in self._readers), default=0)

    @contextmanager
    def watch_runs(self, *run_ids: str, capacity: int = WATCH_CAPACITY) -> Iterator[EventWatch]:
        """Watch all events of runs."""
        self._check_room()
        with self._add_watch([self._runs.setdefault(run_id, []) for run_id in run_ids], capacity) as watch:
            try:
                yield watch
            finally:
                for run_id in run_ids:
                    # The current list of the run; it is removed with its last watch.
                    if all(each is watch for each in self._runs.get(run_id, [])):
                        self._runs.pop(run_id, None)

    def watch_plan(self, plan: str) -> AbstractContextManager[EventWatch]:
        """Watch the end of a plan."""
        return self.watch_runs(_make_plan_key(plan))

    @contextmanager
    def watch_all(self, capacity: int) -> Iterator[EventWatch]:
        """Watch all events. A watch that is read too slowly misses some, and is told so."""
        with self._add_watch([self._all], capacity) as watch:
            yield watch

    @contextmanager
    def _add_watch(self, lists: list[list[EventWatch]], capacity: int) -> Iterator[EventWatch]:
        self._check_room()
        watch = EventWatch(self, capacity)
        for each in lists:
            each.append(watch)
        try:
            yield watch
        finally:
            for each in lists:
                each.remove(watch)

    def _check_room(self) -> None:
        if len(self._runs) + len(self._all) >= WATCHES_MAX:
            raise TryLater("As many wait at this server as may; try again in a moment.")

    def publish(self, events: list[Event]) -> None:
        """Notify the watches of these events."""
        for event in events:
            for watch in self._runs.get(event.run or _make_plan_key(event.plan), ()):
                watch.notify(event)
            for watch in self._all:
                watch.notify(event)

    def publish_gap(self) -> None:
        """Notify all watches that events may have been missed."""
        for watch in self._list_watches():
            watch.notify()

    def _list_watches(self) -> Iterator[EventWatch]:
        return chain(self._all, chain.from_iterable(self._runs.values()))


def _make_plan_key(plan: str) -> str:
    """The key of a plan among the watched ids; no run id contains a blank."""
    return f"plan {plan}"


class _EventReader(threading.Thread):
    """Reads the event stream of one partition."""

    def __init__(self, hub: EventHub, events: PartitionEvents, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(name=f"agentq-event-reader-{events.partition}", daemon=True)
        self.read_at_ms = monotonic_ms()
        self._hub = hub
        self._events = events
        self._loop = loop
        self._wakeup_key = events.store.key(events.partition, "duty_wakeup")
        self._connection: Connection = events.store.connection.another()
        self._after = STREAM_START
        self._wakeup_after = STREAM_START
        self._must_restart = True
        self._stopped = threading.Event()
        self._handled = threading.Event()

    def run(self) -> None:
        while not self._stopped.is_set():
            try:
                if self._must_restart:
                    self._restart()
                self._read()
                self.read_at_ms = monotonic_ms()
            except AgentqError:
                self._must_restart = True
                self._stopped.wait(random.uniform(0, OUTAGE_PAUSE_MS / 1000))
        self._connection.close()

    def stop(self) -> None:
        self._stopped.set()
        self._handled.set()
        self._connection.unblock()
        self.join()

    def _restart(self) -> None:
        """Start at the end of the stream, then notify all watches, since events may have been lost."""
        self._after = self._events.last_id()
        newest = self._events.store.connection.command("XREVRANGE", self._wakeup_key, "+", "-", "COUNT", 1)
        self._wakeup_after = str(newest[0][0]) if newest else STREAM_START
        self._must_restart = False
        self._call_on_loop(self._hub.publish_gap)

    def _read(self) -> None:
        keys = (self._events.key, self._wakeup_key, self._after, self._wakeup_after)
        command = ("XREAD", "COUNT", EVENT_ENTRIES_PER_READ, "BLOCK", BLOCK_MS, "STREAMS", *keys)
        replies = self._connection.block(*command, timeout_ms=BLOCK_MS) or ()
        for key, entries in replies:
            if key == self._wakeup_key:
                self._wakeup_after = entries[-1][0]
                self._hub.on_duty_wakeup()
                continue
            if len(entries) >= EVENT_ENTRIES_PER_READ and self._events.missed(self._after):
                self._call_on_loop(self._hub.publish_gap)
            events = [event for entry in entries for event in self._events.of_entry(entry)]
            self._after = entries[-1][0]
            self._call_on_loop(self._hub.publish, events)
        if replies and monotonic_ms() - self.read_at_ms < BURST_MS:
            self._stopped.wait(BURST_WINDOW_S)

    def _call_on_loop(self, what: Callable[..., None], *arguments: Any) -> None:
        """Call a function on the loop and wait for it, so that a busy loop is not flooded."""
        self._handled.clear()

        def handle_event() -> None:
            try:
                what(*arguments)
            finally:
                self._handled.set()

        if not self._stopped.is_set():
            self._loop.call_soon_threadsafe(handle_event)
            self._handled.wait(LOOP_ACK_TIMEOUT_S)
