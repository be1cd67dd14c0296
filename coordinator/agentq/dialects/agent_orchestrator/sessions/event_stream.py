"""`/sse/sessions`: session events with the names and ids that dashboards of the dialect expect; with replay.

    id: <ms>-<kind>-<number>     event: init | session_created | session_updated | session_deleted | event | run_failed

Milliseconds and number are the position in agentq's event stream, from which a client with `Last-Event-ID` continues.
If one event of agentq becomes two of these, the first has no id: a client that has received only that one gets both
again. A session is described as it is when the message is sent, not as it was at the event, except that a new session
is always shown as pending first.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator
from typing import Any

from agentq.coordinator.clock import monotonic_ms
from agentq.coordinator.errors import NotFound, TryLater, Unreachable
from agentq.coordinator.events.event_filter import EventFilter, LocatedEvent
from agentq.coordinator.model.lifecycle import State
from agentq.dialects.agent_orchestrator.run_translation import START_SESSION, DialectNotes, describe_error
from agentq.dialects.agent_orchestrator.sessions.session_list import SessionLister
from agentq.dialects.agent_orchestrator.sessions.session_status import PENDING
from agentq.dialects.agent_orchestrator.sessions.store import DialectSessionStore
from agentq.server.events.feed import Positions
from agentq.server.http import sse
from agentq.server.service import ServerService

EVENT_CODES = {
    "init": "ini",
    "session_created": "scr",
    "session_updated": "sup",
    "session_deleted": "sdl",
    "event": "evt",
    "run_failed": "rfl",
}
IGNORED_EVENTS = ("progressed", "signalled", "moved", "wake_requested")
"""Events of a run that do not change its session."""
KEEPALIVE_MS = round(sse.KEEPALIVE_S * 1000)
OUTAGE_PAUSE_MS = 1000

_CODE_PATTERN = re.compile(f"-({'|'.join(EVENT_CODES.values())})-")

NamedEvent = tuple[str, dict[str, Any]]
"""The name of an event, and its data."""


def parse_event_id(last_event_id: str) -> str:
    """The position in agentq's event stream that an id stands for."""
    return _CODE_PATTERN.sub("-", last_event_id, count=1)


def format_event_id(position: str, name: str) -> str:
    return position.replace("-", f"-{EVENT_CODES[name]}-", 1)


async def stream_sessions(
    service: ServerService, session_lister: SessionLister, positions: Positions, session: str | None, *, init: bool
) -> AsyncGenerator[str]:
    """Events of all sessions or of one, from these positions on; optionally with the existing sessions first."""
    session_store = session_lister.session_store
    with service.feed.reader(EventFilter(), positions) as reader:
        yield sse.format_opening()
        if init:
            yield _format_event(
                await service.call_in_thread(build_init_event, session_lister, session), reader.position
            )
        quiet_at_ms = monotonic_ms() + KEEPALIVE_MS
        while not service.event_hub.closing:
            try:
                batch = await reader.next(max(0, quiet_at_ms - monotonic_ms()) / 1000)
                translated = await service.call_in_thread(translate_events, session_store, batch.items, session)
                if batch.gap:
                    # The missed events are gone: send all sessions again, as at the start.
                    yield _format_event(
                        await service.call_in_thread(build_init_event, session_lister, session), batch.position
                    )
            except (Unreachable, TryLater):
                yield ": heartbeat\n\n"
                await asyncio.sleep(OUTAGE_PAUSE_MS / 1000)
                continue
            for position, named_events in translated:
                yield "".join(
                    _format_event(each, position if each is named_events[-1] else "") for each in named_events
                )
            if translated or monotonic_ms() >= quiet_at_ms:
                quiet_at_ms = monotonic_ms() + KEEPALIVE_MS
                if not translated:
                    yield ": heartbeat\n\n"


def _format_event(named_event: NamedEvent, position: str) -> str:
    name, body = named_event
    return sse.format_event(json.dumps(body), name=name, event_id=format_event_id(position, name) if position else "")


def build_init_event(session_lister: SessionLister, session: str | None) -> NamedEvent:
    """The first message: all sessions, or one of them."""
    if session is not None:
        session_store = session_lister.session_store
        return "init", {"sessions": [session_store.describe(session)] if session_store.exists(session) else []}
    return "init", {"sessions": session_lister.list_all()}


def translate_events(
    session_store: DialectSessionStore, items: list[Any], session: str | None
) -> list[tuple[str, list[NamedEvent]]]:
    """The messages for each event, with its position."""
    found = []
    for position, item in items:
        named_events = list(_translate_event(session_store, item.event, session))
        if named_events:
            found.append((position, named_events))
    return found


def _translate_event(session_store: DialectSessionStore, event: LocatedEvent, session: str | None) -> list[NamedEvent]:
    name, _, entry = event.detail.partition(" ")
    if event.event in ("dialect_event", "session_deleted"):
        if session not in (None, name):
            return []
        if event.event == "session_deleted":
            return [("session_deleted", {"session_id": name, "runs_deleted": 0})]
        stored = session_store.read_event(name, entry)
        return [("event", {"data": {"session_id": name, **stored}})] if stored is not None else []
    if not event.session or session not in (None, event.session) or event.event in IGNORED_EVENTS:
        return []
    return _translate_run_event(session_store, event)


def _translate_run_event(session_store: DialectSessionStore, event: LocatedEvent) -> list[NamedEvent]:
    try:
        run, fields = session_store.run_queries.get(event.run), session_store.describe(event.session)
    except NotFound:
        return []
    begins = event.event == "submitted" and DialectNotes.from_spec(run.spec).type == START_SESSION
    if begins:
        # Clients expect to see a new session pending, however soon it was claimed.
        fields |= {"status": PENDING}
    named_events: list[NamedEvent] = []
    if event.state is State.FAILED:
        body = {"run_id": run.id, "error": describe_error(run), "session_id": fields["session_id"]}
        named_events.append(("run_failed", body))
    named_events.append(("session_created" if begins else "session_updated", {"session": fields}))
    return named_events
