"""Reads and follows the log of a run, as far as the server keeps it.

A run has one log for all its attempts. An entry's id is its place; ids of one log never repeat or go back, so whoever
keeps the last one it has seen can go on there after any break. The log is capped: where entries went before they were
read, a note stands in their place and says so.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Generator, Iterable, Iterator
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict

from agentq.coordinator.bounds import LOG_BYTES
from agentq.coordinator.errors import NotFound, TryLater, Unreachable, reading_record
from agentq.coordinator.events.stream import STREAM_START
from agentq.coordinator.model.ids import partition_of
from agentq.coordinator.model.lifecycle import TERMINAL_STATES, State
from agentq.coordinator.storage.connection import Connection
from agentq.coordinator.storage.socket_link import pairs_to_dict
from agentq.coordinator.storage.store import NamespaceStore

ENTRIES_PER_READ = 500
FOLLOW_BLOCK_MS = 5000
OUTAGE_DELAY_MS_MAX = 1000
"""The longest delay before the next try of an unreachable server."""

LogStream = Literal["out", "err", "note", "event"]
"""Output of processes, a note of agentq, or an agent event as a line of JSON (see `agent_events`)."""


class LogChunk(NamedTuple):
    """A piece of text for the log of a run: output of its processes, or a note of agentq."""

    stream: LogStream
    text: str


class RunLogEntry(BaseModel):
    """A piece of a run's log. Text of one stream and attempt goes on from entry to entry, also within a line."""

    model_config = ConfigDict(frozen=True)

    id: str
    attempt: int
    stream: LogStream
    text: str
    from_byte: int
    """Bytes that were logged before it, in all attempts."""

    @property
    def at_ms(self) -> int:
        """When it was logged, by the server's clock; a note about missing entries has the time of the entry before."""
        return int(self.id.partition("-")[0])


class Logs:
    """The logs of runs. Following one blocks a connection of its own, so each follower has its own `Logs`."""

    def __init__(self, store: NamespaceStore) -> None:
        self.store = store
        self._reader: Connection | None = None
        self._lock = threading.Lock()
        self._closed = threading.Event()

    def read(self, run_id: str, after: str = STREAM_START) -> Iterator[RunLogEntry]:
        """The entries after a point, up to now."""
        self._state(run_id)
        return self._rest(run_id, self._place(run_id, after))

    def tail(self, run_id: str, most: int) -> list[RunLogEntry]:
        """The newest entries up to now, the oldest of them first."""
        self._state(run_id)
        items = self.store.connection.command("XREVRANGE", self._key(run_id), "+", "-", "COUNT", most)
        return [_parse_entry(item) for item in reversed(items)]

    def is_over(self, run_id: str) -> bool:
        """Whether its run has ended, so that its log is complete."""
        return self._state(run_id) in TERMINAL_STATES

    def some(self, run_id: str, after: str, most: int) -> list[RunLogEntry]:
        """The first entries after a point, for reading a piece at a time."""
        place = self._place(run_id, after)
        items = self.store.connection.command("XRANGE", self._key(run_id), f"({place.id}", "+", "COUNT", most)
        return list(place.passed(map(_parse_entry, items)))

    def place_of(self, run_id: str, byte: int) -> str:
        """The place before the entry with a byte of the log, or before the first entry kept after that byte."""
        place = STREAM_START
        while True:
            command = ("XRANGE", self._key(run_id), f"({place}", "+", "COUNT", ENTRIES_PER_READ)
            items = self.store.connection.command(*command)
            for entry in map(_parse_entry, items):
                if _end_offset(entry) > byte:
                    return place
                place = entry.id
            if len(items) < ENTRIES_PER_READ:
                return place

    def follow(self, run_id: str, after: str = STREAM_START, block_ms: int = FOLLOW_BLOCK_MS) -> Iterator[RunLogEntry]:
        """The entries after a point and all new ones, until the run has ended and all are read.

        It continues across attempts, workers and restarts of the server. An end is noticed at once; `block_ms` is the
        longest time without an event before the run is read again.
        """
        self._state(run_id)
        return self._follow(run_id, self._place(run_id, after), block_ms)

    def close(self) -> None:
        """End a `follow`, from any thread, also if it is about to wait."""
        self._closed.set()
        self._blocking_connection().close()

    def _follow(self, run_id: str, place: _LogPosition, block_ms: int) -> Iterator[RunLogEntry]:
        while not self._closed.is_set():
            try:
                if (yield from self._until_ended(run_id, place, block_ms)):
                    return
            except (Unreachable, TryLater):
                self._closed.wait(random.uniform(0, OUTAGE_DELAY_MS_MAX / 1000))

    def _until_ended(self, run_id: str, place: _LogPosition, block_ms: int) -> Generator[RunLogEntry, None, bool]:
        # Read the place in the events before the run: if the run ends after that, its event is after the place. The log
        # of an ended run is complete, since only the attempt that holds a run can write to it.
        events = self._last_event(run_id)
        while not self._closed.is_set():
            ended = self._has_ended(run_id)
            yield from self._rest(run_id, place)
            if ended:
                return True
            may_have_ended = False
            while not may_have_ended and not self._closed.is_set():
                entries, events, may_have_ended = self._block(run_id, place.id, events, block_ms)
                yield from place.passed(entries)
        return False

    def _block(self, run_id: str, place: str, events: str, block_ms: int) -> tuple[list[RunLogEntry], str, bool]:
        """The new entries, the new place in the events, and whether the run should be read."""
        keys = (self._key(run_id), self._events_key(run_id))
        words = ("XREAD", "COUNT", ENTRIES_PER_READ, "BLOCK", block_ms, "STREAMS", *keys, place, events)
        reply = dict(self._blocking_connection().block(*words, timeout_ms=block_ms) or ())
        new_events = reply.get(keys[1], [])
        facts = [pairs_to_dict(flat) for _, flat in new_events]
        ended = any(fact["run"] == run_id and fact["state"] in TERMINAL_STATES for fact in facts)
        return (
            [_parse_entry(item) for item in reply.get(keys[0], [])],
            new_events[-1][0] if new_events else events,
            ended or not reply,
        )

    def _blocking_connection(self) -> Connection:
        with self._lock:
            if self._reader is None:
                self._reader = self.store.connection.another()
            return self._reader

    def _rest(self, run_id: str, place: _LogPosition) -> Iterator[RunLogEntry]:
        """All entries up to now."""
        while True:
            command = ("XRANGE", self._key(run_id), f"({place.id}", "+", "COUNT", ENTRIES_PER_READ)
            items = self.store.connection.command(*command)
            yield from place.passed(map(_parse_entry, items))
            if len(items) < ENTRIES_PER_READ:
                return

    def _place(self, run_id: str, after: str) -> _LogPosition:
        if after == STREAM_START:
            return _LogPosition(after, 0)
        before = self.store.connection.command("XREVRANGE", self._key(run_id), after, "-", "COUNT", 1)
        return _LogPosition(after, _end_offset(_parse_entry(before[0])) if before else None)

    def _last_event(self, run_id: str) -> str:
        newest = self.store.connection.command("XREVRANGE", self._events_key(run_id), "+", "-", "COUNT", 1)
        return str(newest[0][0]) if newest else STREAM_START

    def _has_ended(self, run_id: str) -> bool:
        try:
            return self._state(run_id) in TERMINAL_STATES
        except NotFound:
            # It was there before: its time is over.
            return True

    def _state(self, run_id: str) -> State:
        self.store.guard()
        state = self.store.connection.command("HGET", self.store.key(partition_of(run_id), "run", run_id), "state")
        if state is None:
            raise NotFound(f"There is no run {run_id}; it may have been deleted after its retention.")
        with reading_record(f"the run {run_id}"):
            return State(state)

    def _key(self, run_id: str) -> str:
        return self.store.key(partition_of(run_id), "log", run_id)

    def _events_key(self, run_id: str) -> str:
        return self.store.key(partition_of(run_id), "events")


class _LogPosition:
    """The position of a reader: the last entry it has seen, and the bytes up to there, if known."""

    def __init__(self, entry_id: str, end: int | None) -> None:
        self.id = entry_id
        self.end = end

    def passed(self, entries: Iterable[RunLogEntry]) -> Iterator[RunLogEntry]:
        """The entries, with a note in place of missing ones."""
        for entry in entries:
            if entry.from_byte > (self.end or 0):
                yield self._gap(entry)
            self.id, self.end = entry.id, _end_offset(entry)
            yield entry

    def _gap(self, entry: RunLogEntry) -> RunLogEntry:
        size = "some output is" if self.end is None else f"{entry.from_byte - self.end} bytes are"
        text = f"{size} missing here: the log keeps the newest {LOG_BYTES} bytes, the file on the worker has the rest\n"
        return RunLogEntry(id=self.id, attempt=entry.attempt, stream="note", text=text, from_byte=self.end or 0)


def _end_offset(entry: RunLogEntry) -> int:
    return entry.from_byte + len(entry.text.encode())


def _parse_entry(item: Any) -> RunLogEntry:
    place, flat = item
    fields = pairs_to_dict(flat)
    attempt = fields.pop("fence").partition("-")[0]
    return RunLogEntry.model_validate({"id": place, "attempt": attempt, **fields})
