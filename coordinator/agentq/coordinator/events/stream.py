"""The capped event stream that every script appends to: replay and follow from any position.

An event's id is its place in the stream of its partition; ids of one partition never repeat or go back, so whoever
keeps the last one it has seen can go on there after any break. `missed` tells when the stream was trimmed past it.

What happened to several runs at once is one entry of the stream and several events. The last of them has the entry's
own id, those before it that with `/` and a number.

An event that is of no run (NOTICES) has an empty one. That of a worker names the worker, and comes once in each
partition that the worker serves. That of a plan names the plan, and its state is the word that it
ended with; another one has no state.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict

from agentq.coordinator.bounds import EVENTS_PER_ENTRY
from agentq.coordinator.model.durations import format_iso
from agentq.coordinator.model.lifecycle import TRANSITIONS, State
from agentq.coordinator.storage.connection import Connection
from agentq.coordinator.storage.socket_link import pairs_to_dict
from agentq.coordinator.storage.store import NamespaceStore

EVENT_ENTRIES_PER_READ = 500
STREAM_START = "0-0"
NOTICE_EVENTS = {
    "plan_ended": "a plan has ended: all of it was submitted, and none of its tasks lives",
    "worker_registered": "a worker has registered, in this partition",
    "worker_draining": "a worker claims nothing more; `detail` tells who asked for that",
    "worker_left": "a worker has finished or handed back what it held, and left",
    "worker_lost": "a worker was declared lost, what it held goes on elsewhere; `detail` tells why",
    "dialect_event": "a foreign executor appended an event to a session; `detail` names the session and the entry",
    "session_deleted": "a session was deleted before its time; `detail` names it",
    "scripts_changed": "a script that runners fetch was stored, changed or taken away",
    "webhook_disabled": "nobody is told through a webhook any more, which has failed for too long",
}
"""Events that are of no run, and what they tell."""
EVENT_NAMES = (*dict.fromkeys(row.event for row in TRANSITIONS), *NOTICE_EVENTS)
"""What an event can be called."""


class Event(BaseModel):
    """One fact about one run, or a notice."""

    model_config = ConfigDict(frozen=True)

    id: str
    partition: int
    event: str
    run: str
    state: State | Literal[""]
    attempt: int
    worker: str
    detail: str
    plan: str = ""
    """Of `plan_ended`; how many of its tasks ended in which state is in `detail`."""

    @property
    def of_worker(self) -> bool:
        """Whether it tells what has become of a worker."""
        return self.event.startswith("worker_")

    @property
    def at_ms(self) -> int:
        """When it happened, by the server's clock."""
        return int(self.id.partition("-")[0])

    def public_json(self) -> dict[str, Any]:
        """The event as the CLI, the API and webhooks show it."""
        record = self.model_dump(mode="json") | {"at": format_iso(self.at_ms), "worker": self.worker or None}
        return {name: record[name] for name in ("id", "at", *type(self).model_fields) if name in record}

    @classmethod
    def from_public_json(cls, record: dict[str, Any]) -> Self:
        """The event that `public_json` wrote."""
        return cls.model_validate({**record, "worker": record["worker"] or ""})


class PartitionEvents:
    """The events of one partition. Following blocks a connection, which therefore is its own."""

    def __init__(self, store: NamespaceStore, partition: int = 0) -> None:
        self.store = store
        self.partition = partition
        self.key = store.key(partition, "events")
        self._reader: Connection | None = None
        self._lock = threading.Lock()

    def last_id(self) -> str:
        """The id of the newest event; events after it are those that happen from now on."""
        self.store.guard()
        newest = self.store.connection.command("XREVRANGE", self.key, "+", "-", "COUNT", 1)
        return str(newest[0][0]) if newest else STREAM_START

    def position_before_newest(self, count: int) -> str:
        """The place after which at least so many events are kept, if there are as many."""
        self.store.guard()
        newest = self.store.connection.command("XREVRANGE", self.key, "+", "-", "COUNT", count + 1)
        return str(newest[-1][0]) if len(newest) > count else STREAM_START

    def replay(self, after: str = STREAM_START) -> Iterator[Event]:
        """What has happened after a point, up to now."""
        self.store.guard()
        yield from self._rest_of_entry(after)
        place = _entry_of(after)
        while True:
            entries = self.store.connection.command(
                "XRANGE", self.key, f"({place}", "+", "COUNT", EVENT_ENTRIES_PER_READ
            )
            for entry in entries:
                yield from self.of_entry(entry)
            if len(entries) < EVENT_ENTRIES_PER_READ:
                return
            place = entries[-1][0]

    def follow(self, after: str, block_ms: int) -> list[Event]:
        """What happened after a point; waits up to `block_ms` for something to happen."""
        rest = self._rest_of_entry(after)
        if rest:
            return rest
        words = ("XREAD", "COUNT", EVENT_ENTRIES_PER_READ, "BLOCK", block_ms, "STREAMS", self.key, _entry_of(after))
        reply = self._blocking_connection().block(*words, timeout_ms=block_ms)
        return [event for entry in reply[0][1] for event in self.of_entry(entry)] if reply else []

    def _rest_of_entry(self, after: str) -> list[Event]:
        """The events after one that is not the last of its entry."""
        place, _, number = after.partition("/")
        if not number:
            return []
        found = self.store.connection.command("XRANGE", self.key, place, place)
        return [event for entry in found for event in self.of_entry(entry)][int(number) :]

    def missed(self, after: str) -> bool:
        """Whether events after that point may be gone already, because the stream is capped."""
        if after == STREAM_START or event_sort_key(self.oldest_id()) <= event_sort_key(_entry_of(after)):
            return False
        about = pairs_to_dict(self.store.connection.command("XINFO", "STREAM", self.key))
        return int(about["entries-added"]) > int(about["length"])

    def oldest_id(self) -> str:
        """The id of the oldest event that is kept; the beginning where there is none."""
        oldest = self.store.connection.command("XRANGE", self.key, "-", "+", "COUNT", 1)
        return str(oldest[0][0]) if oldest else STREAM_START

    def close(self) -> None:
        """Stop following."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def interrupt(self) -> None:
        """End a `follow` that another thread waits in, or is about to."""
        self._blocking_connection().unblock()

    def _blocking_connection(self) -> Connection:
        with self._lock:
            if self._reader is None:
                self._reader = self.store.connection.another()
            return self._reader

    def of_entry(self, entry: Any) -> list[Event]:
        """The events of an entry, as the server tells it."""
        place, flat = entry
        fields = pairs_to_dict(flat)
        runs, attempts = fields["run"].split(" "), fields["attempt"].split(" ")
        each = {"partition": self.partition, **fields}
        return [
            Event.model_validate(
                {**each, "id": f"{place}/{number}" if number < len(runs) else place, "run": run, "attempt": attempt}
            )
            for number, (run, attempt) in enumerate(zip(runs, attempts, strict=True), 1)
        ]


def _entry_of(event: str) -> str:
    """The entry of an event."""
    return event.partition("/")[0]


def event_sort_key(event: str) -> tuple[int, int, int]:
    """What ids of one partition are compared by."""
    entry, _, place = event.partition("/")
    at_ms, _, number = entry.partition("-")
    return int(at_ms), int(number), int(place) if place else EVENTS_PER_ENTRY
