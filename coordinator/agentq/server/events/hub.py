"""Waiting without threads: one reader for each partition follows what happens, and wakes whoever waits for it.

However many wait, for a run, for a plan or for everything, it costs one connection and one thread
for each partition, and a waiter is a few objects on the event loop. The order of things is what makes it safe: begin
to watch, then look, then wait; whatever happens after the look rings.

An outage of the server is not told to anybody: nothing rings while it lasts, and afterwards everybody is rung once, to
look again, because what was told meanwhile may be gone.
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
"""How long to wait, at the most, before the next look at a server that was out of reach."""
WATCH_CAPACITY = 64
"""Events that wait to be taken by a watch that does not say how many."""
WATCHES_MAX = 20_000
BURST_MS = 10
BURST_WINDOW_S = 0.003
"""Where one thing happens after the other, what happens in so short a time is told together; what happens alone is told
at once."""
LOOP_ACK_TIMEOUT_S = 30.0
"""How long the loop may take to hear of a batch before the next is read all the same."""


@dataclass(frozen=True, slots=True)
class WatchedEvents:
    """What rang. With `missed`, more has happened than is told here: look at everything again."""

    events: list[Event] = field(default_factory=list)
    missed: bool = False

    def __bool__(self) -> bool:
        return bool(self.events) or self.missed


class EventWatch:
    """One waiter. It is rung for what it was made for, and keeps so many events until they are taken."""

    __slots__ = ("_capacity", "_events", "_hub", "_missed", "_wakeup")

    def __init__(self, hub: EventHub, capacity: int) -> None:
        self._hub = hub
        self._capacity = capacity
        self._events: deque[Event] = deque()
        self._missed = False
        self._wakeup: asyncio.Future[None] | None = None

    async def next(self, timeout_s: float, *others: asyncio.Future[Any]) -> WatchedEvents:
        """What has rung since the last time, or rings within a time; nothing then, or when the server is to end.

        `others` end the wait as well: a client that goes away, say.
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
        """Tell of an event; without one, that there is something to look at."""
        if event is None or len(self._events) >= self._capacity:
            self._missed = True
            self._events.clear()
        elif not self._missed:
            self._events.append(event)
        self.wake()

    def wake(self) -> None:
        """End a wait that goes on."""
        if self._wakeup is not None and not self._wakeup.done():
            self._wakeup.set_result(None)


class EventHub:
    """All that is waited for in this process. To be used on its loop alone."""

    def __init__(self, store: NamespaceStore) -> None:
        self.store = store
        self.closing = False
        """The server is to end: nobody waits any longer, and whoever did answers with what there is."""
        self.on_duty_wakeup: Callable[[], None] = lambda: None
        """Called, in a reader's thread, when something is due sooner than the keeper of the duties knows."""
        self._runs: dict[str, list[EventWatch]] = {}
        self._all: list[EventWatch] = []
        self._readers: list[_EventReader] = []

    def start(self) -> None:
        """Begin to follow."""
        loop = asyncio.get_running_loop()
        self._readers = [
            _EventReader(self, PartitionEvents(self.store, each), loop) for each in self.store.partitions()
        ]
        for reader in self._readers:
            reader.start()

    def close(self) -> None:
        """End every wait, at once; nobody waits from now on."""
        self.closing = True
        for watch in self._list_watches():
            watch.wake()

    def stop(self) -> None:
        """End the readers. It waits for them, so not on the loop."""
        for reader in self._readers:
            reader.stop()

    @property
    def watch_count(self) -> int:
        """How many wait."""
        return sum(1 for _ in self._list_watches())

    def longest_silence_ms(self) -> int:
        """For how long the reader that was heard of least recently has not been: seconds, in a server that works."""
        return max((monotonic_ms() - reader.read_at_ms for reader in self._readers), default=0)

    @contextmanager
    def watch_runs(self, *run_ids: str, capacity: int = WATCH_CAPACITY) -> Iterator[EventWatch]:
        """Watch runs: every event of them."""
        self._check_room()
        with self._add_watch([self._runs.setdefault(run_id, []) for run_id in run_ids], capacity) as watch:
            try:
                yield watch
            finally:
                for run_id in run_ids:
                    # The list that it stands in now; it leaves with its last watch.
                    if all(each is watch for each in self._runs.get(run_id, [])):
                        self._runs.pop(run_id, None)

    def watch_plan(self, plan: str) -> AbstractContextManager[EventWatch]:
        """Watch a plan: its end."""
        return self.watch_runs(_make_plan_key(plan))

    @contextmanager
    def watch_all(self, capacity: int) -> Iterator[EventWatch]:
        """Watch all events. Who takes them too slowly misses some, and is told so."""
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
        """Ring for what happened."""
        for event in events:
            for watch in self._runs.get(event.run or _make_plan_key(event.plan), ()):
                watch.notify(event)
            for watch in self._all:
                watch.notify(event)

    def publish_gap(self) -> None:
        """Ring for everybody: what happened is not known."""
        for watch in self._list_watches():
            watch.notify()

    def _list_watches(self) -> Iterator[EventWatch]:
        return chain(self._all, chain.from_iterable(self._runs.values()))


def _make_plan_key(plan: str) -> str:
    """What a plan is among what is watched by its id; no run has a blank in it."""
    return f"plan {plan}"


class _EventReader(threading.Thread):
    """Follows one partition."""

    def __init__(self, hub: EventHub, events: PartitionEvents, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(name=f"agentq-tides-{events.partition}", daemon=True)
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
        """Begin anew, in the order that is safe: what was told may be gone, or the server not as far as it was."""
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
        """Say it on the loop, and wait until it was heard, so that a loop that is busy is not buried."""
        self._handled.clear()

        def handle_event() -> None:
            try:
                what(*arguments)
            finally:
                self._handled.set()

        if not self._stopped.is_set():
            self._loop.call_soon_threadsafe(handle_event)
            self._handled.wait(LOOP_ACK_TIMEOUT_S)
