"""Hears what happens to a plan over HTTP: one stream, read ahead by a thread of its own."""

from __future__ import annotations

import queue
import threading
from contextlib import suppress

from agentq.coordinator.errors import AgentqError
from agentq.coordinator.events.stream import Event
from agentq.sdk.http_backend.event_stream import END_EVENT, GAP_EVENT, OPENING_EVENT, ResumableStream
from agentq.sdk.http_backend.http_client import HttpClient

EVENTS_HELD_MAX = 50_000
"""Events that wait to be read; with more, all tasks are to be read instead."""
OPEN_TIMEOUT_S = 60.0


class HttpPlanWatcher:
    """The events of a plan and of its runs."""

    def __init__(self, wire: HttpClient, plan: str) -> None:
        self._items: queue.SimpleQueue[Event | AgentqError | None] = queue.SimpleQueue()
        self._stream = ResumableStream(wire, "/events", {"plan": plan})
        self._opened = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="agentq-plan-events", daemon=True)
        self._thread.start()
        if not self._opened.wait(OPEN_TIMEOUT_S):
            self.close()
            raise wire.unreachable(TimeoutError("the stream of events does not open"))

    def skip(self) -> None:
        with suppress(queue.Empty):
            while True:
                self._items.get_nowait()

    def read(self, wait_ms: int) -> list[Event] | None:
        found: list[Event] = []
        with suppress(queue.Empty):
            item = self._items.get(timeout=wait_ms / 1000)
            while True:
                if item is None:
                    return None
                if isinstance(item, AgentqError):
                    raise item
                found.append(item)
                item = self._items.get_nowait()
        return found

    def close(self) -> None:
        self._stream.interrupt()
        self._thread.join()

    def _listen(self) -> None:
        """Until it is closed; what keeps the server away is waited out."""
        try:
            for told in self._stream.items():
                if told.name == GAP_EVENT or self._items.qsize() > EVENTS_HELD_MAX:
                    self._items.put(None)
                elif told.name not in (OPENING_EVENT, END_EVENT):
                    self._items.put(Event.from_public_json(told.facts))
                self._opened.set()
        except AgentqError as fault:
            self._items.put(fault)
        except Exception as fault:  # noqa: BLE001 - the reader must hear of it
            self._items.put(AgentqError(f"The coordinator's events cannot be read: {fault!r}"))
        self._opened.set()
