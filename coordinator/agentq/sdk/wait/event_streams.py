"""Events as they happen, of all partitions or of one run, with the place to go on from after any break."""

from __future__ import annotations

import threading
from collections.abc import Generator
from queue import SimpleQueue

from agentq.coordinator.errors import AgentqError, Invalid, TryLater, Unreachable
from agentq.coordinator.events.stream import STREAM_START, Event, PartitionEvents
from agentq.coordinator.model.ids import partition_of
from agentq.coordinator.model.lifecycle import TERMINAL_STATES
from agentq.coordinator.runs.end_waiter import OUTAGE_DELAY_MS_MAX
from agentq.coordinator.storage.store import NamespaceStore
from agentq.sdk.wait.stream import Stream

FOLLOW_MS = 5000
EventQueue = SimpleQueue[Event | AgentqError | None]
"""What the listeners of one stream have heard; None ends it."""


class PositionedEvent(Event):
    """An event, with the place in all partitions that a reader has come to with it."""

    place: str


def stream_events(store: NamespaceStore, after: str | None, follow: bool) -> Stream[PositionedEvent]:
    """The events of a namespace. With `follow`, without end: leave the loop to stop."""
    heard = EventQueue()
    return Stream(_iterate_events(store, after, follow, heard), lambda: heard.put(None))


def stream_run_events(store: NamespaceStore, run_id: str, after: str | None, follow: bool) -> Stream[Event]:
    """What has happened to one run, and with `follow` what does until it has ended."""
    heard = EventQueue()
    return Stream(_iterate_run_events(store, run_id, after, follow, heard), lambda: heard.put(None))


def _iterate_events(
    store: NamespaceStore, after: str | None, follow: bool, heard: EventQueue
) -> Generator[PositionedEvent]:
    places = _start_positions(store, after)
    for partition in places if after is not None else ():
        for event in PartitionEvents(store, partition).replay(places[partition]):
            places[partition] = event.id
            yield _with_position(event, places)
    if follow:
        yield from _follow_partitions(store, places, heard)


def _iterate_run_events(
    store: NamespaceStore, run_id: str, after: str | None, follow: bool, heard: EventQueue
) -> Generator[Event]:
    partition = partition_of(run_id)
    place = STREAM_START if after is None else after
    reader = PartitionEvents(store, partition)
    ended = False
    for event in reader.replay(place):
        place = event.id
        if event.run == run_id:
            yield event
            ended = event.state in TERMINAL_STATES
    if not follow or ended:
        return
    for event in _follow_partitions(store, {partition: place}, heard):
        if event.run == run_id:
            yield event
            if event.state in TERMINAL_STATES:
                return


def _follow_partitions(store: NamespaceStore, places: dict[int, str], heard: EventQueue) -> Generator[PositionedEvent]:
    listeners = [
        _PartitionReader(PartitionEvents(store, partition), place, heard) for partition, place in places.items()
    ]
    try:
        while True:
            event = heard.get()
            if event is None:
                return
            if isinstance(event, AgentqError):
                raise event
            places[event.partition] = event.id
            yield _with_position(event, places)
    finally:
        for listener in listeners:
            listener.stop()


class _PartitionReader(threading.Thread):
    """Follows one partition; what happens during an outage is read when the server is back."""

    def __init__(self, events: PartitionEvents, place: str, heard: EventQueue) -> None:
        super().__init__(name="agentq-events", daemon=True)
        self._events, self._place, self._heard = events, place, heard
        self._stopped = threading.Event()
        self.start()

    def run(self) -> None:
        while not self._stopped.is_set():
            try:
                for event in self._events.follow(self._place, FOLLOW_MS):
                    self._place = event.id
                    self._heard.put(event)
            except (Unreachable, TryLater):
                self._events.close()
                self._stopped.wait(OUTAGE_DELAY_MS_MAX / 1000)
            except AgentqError as fault:
                self._heard.put(fault)
                break
        self._events.close()

    def stop(self) -> None:
        self._stopped.set()
        self._events.interrupt()
        self.join()


def _start_positions(store: NamespaceStore, after: str | None) -> dict[int, str]:
    """Where to begin in each partition: where a reader came to, or with what happens from now on."""
    partitions = list(store.partitions())
    if after is None:
        return {partition: PartitionEvents(store, partition).last_id() for partition in partitions}
    if after == STREAM_START:
        return dict.fromkeys(partitions, STREAM_START)
    parts = after.split(",")
    if len(parts) != len(partitions):
        raise Invalid(
            f"{after[:80]!r} is not a position in the events: it has {len(parts)} parts for {len(partitions)}."
        )
    return dict(zip(partitions, parts, strict=True))


def _with_position(event: Event, places: dict[int, str]) -> PositionedEvent:
    return PositionedEvent(**dict(event), place=",".join(places[partition] for partition in sorted(places)))
