"""Events as they happen, of all partitions or of one run, with the place to go on from after any break."""

from __future__ import annotations

import threading
from collections.abc import Generator
from queue import SimpleQueue

from agentq.coordinator.errors import AgentqError, Invalid, TryLater, Unreachable
from agentq.coordinator.events import BEGINNING, Event, Events
from agentq.coordinator.identity import partition_of
from agentq.coordinator.lifecycle import TERMINAL
from agentq.coordinator.outcomes import OUTAGE_MS
from agentq.coordinator.store import Store
from agentq.sdk.streaming import Stream

FOLLOW_MS = 5000
Heard = SimpleQueue[Event | AgentqError | None]
"""What the listeners of one stream have heard; None ends it."""


class Placed(Event):
    """An event, with the place in all partitions that a reader has come to with it."""

    place: str


def events(store: Store, after: str | None, follow: bool) -> Stream[Placed]:
    """What happens in a namespace. With `follow`, for ever: whoever has enough leaves."""
    heard = Heard()
    return Stream(_events(store, after, follow, heard), lambda: heard.put(None))


def events_of(store: Store, run_id: str, after: str | None, follow: bool) -> Stream[Event]:
    """What has happened to one run, and with `follow` what does until it has ended."""
    heard = Heard()
    return Stream(_events_of(store, run_id, after, follow, heard), lambda: heard.put(None))


def _events(store: Store, after: str | None, follow: bool, heard: Heard) -> Generator[Placed]:
    places = _places(store, after)
    for partition in places if after is not None else ():
        for event in Events(store, partition).replay(places[partition]):
            places[partition] = event.id
            yield _placed(event, places)
    if follow:
        yield from _followed(store, places, heard)


def _events_of(store: Store, run_id: str, after: str | None, follow: bool, heard: Heard) -> Generator[Event]:
    partition = partition_of(run_id)
    place = BEGINNING if after is None else after
    reader = Events(store, partition)
    ended = False
    for event in reader.replay(place):
        place = event.id
        if event.run == run_id:
            yield event
            ended = event.state in TERMINAL
    if not follow or ended:
        return
    for event in _followed(store, {partition: place}, heard):
        if event.run == run_id:
            yield event
            if event.state in TERMINAL:
                return


def _followed(store: Store, places: dict[int, str], heard: Heard) -> Generator[Placed]:
    listeners = [_Listener(Events(store, partition), place, heard) for partition, place in places.items()]
    try:
        while True:
            event = heard.get()
            if event is None:
                return
            if isinstance(event, AgentqError):
                raise event
            places[event.partition] = event.id
            yield _placed(event, places)
    finally:
        for listener in listeners:
            listener.stop()


class _Listener(threading.Thread):
    """Follows one partition; what happens during an outage is read when the server is back."""

    def __init__(self, events: Events, place: str, heard: Heard) -> None:
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
                self._stopped.wait(OUTAGE_MS / 1000)
            except AgentqError as fault:
                self._heard.put(fault)
                break
        self._events.close()

    def stop(self) -> None:
        self._stopped.set()
        self._events.interrupt()
        self.join()


def _places(store: Store, after: str | None) -> dict[int, str]:
    """Where to begin in each partition: where a reader came to, or with what happens from now on."""
    partitions = list(store.partitions())
    if after is None:
        return {partition: Events(store, partition).last_id() for partition in partitions}
    if after == BEGINNING:
        return dict.fromkeys(partitions, BEGINNING)
    parts = after.split(",")
    if len(parts) != len(partitions):
        raise Invalid(
            f"{after[:80]!r} is not a place in these events: it has {len(parts)} parts for {len(partitions)}."
        )
    return dict(zip(partitions, parts, strict=True))


def _placed(event: Event, places: dict[int, str]) -> Placed:
    return Placed(**dict(event), place=",".join(places[partition] for partition in sorted(places)))
