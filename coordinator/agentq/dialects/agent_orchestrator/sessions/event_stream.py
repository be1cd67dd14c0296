"""`/sse/sessions`: what happens in sessions, in the names and with the ids that foreign dashboards know; with replay.

    id: <ms>-<kind>-<number>     event: init | session_created | session_updated | session_deleted | event | run_failed

Milliseconds and number are the place in our own stream of events, so a client that comes back with `Last-Event-ID` goes
on exactly there. Where two of these events are made of one of ours, the first has no id: who has seen only that one is
told both again. What a session is told to be is what it is when it is told, not what it was when something happened;
but for its beginning, when it is pending.
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
"""Events of a run that change nothing of its session."""
KEEPALIVE_MS = round(sse.KEEPALIVE_S * 1000)
OUTAGE_PAUSE_MS = 1000

_CODE_PATTERN = re.compile(f"-({'|'.join(EVENT_CODES.values())})-")

NamedEvent = tuple[str, dict[str, Any]]
"""The name of an event, and its data."""


def parse_event_id(last_event_id: str) -> str:
    """The place in our own stream that an id stands for."""
    return _CODE_PATTERN.sub("-", last_event_id, count=1)


def format_event_id(place: str, name: str) -> str:
    return place.replace("-", f"-{EVENT_CODES[name]}-", 1)


async def stream_sessions(
    service: ServerService, session_lister: SessionLister, places: Positions, session: str | None, *, init: bool
) -> AsyncGenerator[str]:
    """What happens in all sessions, or in one, from these places on; first, if asked for, what there is."""
    session_store = session_lister.session_store
    with service.feed.reader(EventFilter(), places) as reader:
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
                    # What the client has missed is gone: it is told everything there is, as in the beginning.
                    yield _format_event(
                        await service.call_in_thread(build_init_event, session_lister, session), batch.position
                    )
            except (Unreachable, TryLater):
                yield ": heartbeat\n\n"
                await asyncio.sleep(OUTAGE_PAUSE_MS / 1000)
                continue
            for place, named_events in translated:
                yield "".join(_format_event(each, place if each is named_events[-1] else "") for each in named_events)
            if translated or monotonic_ms() >= quiet_at_ms:
                quiet_at_ms = monotonic_ms() + KEEPALIVE_MS
                if not translated:
                    yield ": heartbeat\n\n"


def _format_event(named_event: NamedEvent, place: str) -> str:
    name, body = named_event
    return sse.format_event(json.dumps(body), name=name, event_id=format_event_id(place, name) if place else "")


def build_init_event(session_lister: SessionLister, session: str | None) -> NamedEvent:
    """The sessions that there are, or one of them, as the first message has it."""
    if session is not None:
        session_store = session_lister.session_store
        return "init", {"sessions": [session_store.describe(session)] if session_store.exists(session) else []}
    return "init", {"sessions": session_lister.list_all()}


def translate_events(
    session_store: DialectSessionStore, items: list[Any], session: str | None
) -> list[tuple[str, list[NamedEvent]]]:
    """What the client is told of each event, with its place."""
    found = []
    for place, item in items:
        named_events = list(_translate_event(session_store, item.event, session))
        if named_events:
            found.append((place, named_events))
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
        # Its clients wait to see it pending, however soon it was claimed.
        fields |= {"status": PENDING}
    named_events: list[NamedEvent] = []
    if event.state is State.FAILED:
        body = {"run_id": run.id, "error": describe_error(run), "session_id": fields["session_id"]}
        named_events.append(("run_failed", body))
    named_events.append(("session_created" if begins else "session_updated", {"session": fields}))
    return named_events
