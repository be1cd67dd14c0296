"""Streams of a coordinator, listened to across whatever breaks them: each goes on where it was, by its last id."""

from __future__ import annotations

import http.client
import json
import random
import threading
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from agentq.coordinator.errors import Invalid, TryLater, Unreachable
from agentq.coordinator.runs.end_waiter import OUTAGE_DELAY_MS_MAX
from agentq.sdk.http_backend.http_client import HttpClient, OpenStream, QueryParameters

OPENING_EVENT = ""
"""The name of what comes first on every connection: the place."""
GAP_EVENT = "gap"
END_EVENT = "end"


@dataclass(frozen=True, slots=True)
class StreamItem:
    """One event of a stream: its name, its facts, and the place after it."""

    name: str
    facts: Any
    place: str


class ResumableStream:
    """One stream, which `interrupt` ends from another thread."""

    def __init__(
        self, wire: HttpClient, path: str, query: QueryParameters | None = None, *, last: str | None = None
    ) -> None:
        self._wire = wire
        self._path = path
        self._query = query
        self._last = last
        self._heard = False
        """Whether its place is one that the coordinator has told."""
        self._stopped = threading.Event()
        self._open: OpenStream | None = None
        self._lock = threading.Lock()

    def items(self, *, patient: bool = True) -> Generator[StreamItem]:
        """What is told, until it is interrupted or the stream has come to its end. With `patient`, whatever keeps the
        server away is waited out; without, only once the stream has been open."""
        while not self._stopped.is_set():
            try:
                yield from self._connected()
                patient = True
                if self._open is not None and self._open.over:
                    return
            except (Unreachable, TryLater):
                if not patient:
                    raise
            except Invalid:
                if not self._heard:
                    raise
                # The place that it has told us is none to it any more: its store is another one.
                self._last, self._heard = None, False
                yield StreamItem(GAP_EVENT, None, "")
            except (OSError, http.client.HTTPException):
                # The stream broke, or was interrupted.
                patient = True
            self._stopped.wait(random.uniform(0, OUTAGE_DELAY_MS_MAX) / 1000)

    def interrupt(self) -> None:
        """End it."""
        with self._lock:
            self._stopped.set()
            if self._open is not None:
                self._open.interrupt()

    def _connected(self) -> Generator[StreamItem]:
        stream = self._wire.stream(self._path, self._query, self._last)
        with self._lock:
            self._open = stream
            if self._stopped.is_set():
                stream.interrupt()
        try:
            yield from self._read(stream)
        finally:
            stream.close()

    def _read(self, stream: OpenStream) -> Generator[StreamItem]:
        fields: dict[str, str] = {}
        opened = False
        while (line := stream.line()) is not None:
            name, _, value = line.partition(":")
            if line and name:
                fields[name] = value.removeprefix(" ")
            if line:
                continue
            if "id" in fields:
                self._last, self._heard = fields["id"], True
            if "data" in fields:
                told = StreamItem(fields.get("event", "message"), json.loads(fields["data"]), self._last or "")
                yield told
                if told.name == END_EVENT:
                    stream.over = True
                    return
            elif not opened:
                yield StreamItem(OPENING_EVENT, None, self._last or "")
            opened, fields = True, {}
