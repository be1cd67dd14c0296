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
from agentq.coordinator.interest import Interest, Located
from agentq.coordinator.lifecycle import State
from agentq.coordinator.server import sse
from agentq.coordinator.server.feed import Places
from agentq.coordinator.server.foreign.conversing import Conversing
from agentq.coordinator.server.foreign.session_list import SessionList
from agentq.coordinator.server.foreign.session_status import PENDING
from agentq.coordinator.server.foreign.speaking import START, Notes, error_of
from agentq.coordinator.server.service import Service

KIND = {
    "init": "ini",
    "session_created": "scr",
    "session_updated": "sup",
    "session_deleted": "sdl",
    "event": "evt",
    "run_failed": "rfl",
}
PASSED_OVER = ("progressed", "signalled", "moved", "wanted")
"""Events of a run that change nothing of its session."""
KEEPALIVE_MS = round(sse.KEEPALIVE_S * 1000)
OUTAGE_MS = 1000

_MARK = re.compile(f"-({'|'.join(KIND.values())})-")

Telling = tuple[str, dict[str, Any]]
"""The name of an event, and its data."""


def place_of(last_event_id: str) -> str:
    """The place in our own stream that an id stands for."""
    return _MARK.sub("-", last_event_id, count=1)


def id_of(place: str, name: str) -> str:
    return place.replace("-", f"-{KIND[name]}-", 1)


async def sessions(
    service: Service, listed: SessionList, places: Places, session: str | None, *, init: bool
) -> AsyncGenerator[str]:
    """What happens in all sessions, or in one, from these places on; first, if asked for, what there is."""
    conversing = listed.conversing
    with service.feed.reader(Interest(), places) as reader:
        yield sse.opening()
        if init:
            yield _words(await service.ask(present, listed, session), reader.place)
        quiet_at_ms = monotonic_ms() + KEEPALIVE_MS
        while not service.tides.closing:
            try:
                batch = await reader.next(max(0, quiet_at_ms - monotonic_ms()) / 1000)
                told = await service.ask(told_of, conversing, batch.items, session)
                if batch.gap:
                    # What the client has missed is gone: it is told everything there is, as in the beginning.
                    yield _words(await service.ask(present, listed, session), batch.place)
            except (Unreachable, TryLater):
                yield ": heartbeat\n\n"
                await asyncio.sleep(OUTAGE_MS / 1000)
                continue
            for place, tellings in told:
                yield "".join(_words(each, place if each is tellings[-1] else "") for each in tellings)
            if told or monotonic_ms() >= quiet_at_ms:
                quiet_at_ms = monotonic_ms() + KEEPALIVE_MS
                if not told:
                    yield ": heartbeat\n\n"


def _words(telling: Telling, place: str) -> str:
    name, body = telling
    return sse.told(json.dumps(body), name=name, place=id_of(place, name) if place else "")


def present(listed: SessionList, session: str | None) -> Telling:
    """The sessions that there are, or one of them, as the first message has it."""
    if session is not None:
        conversing = listed.conversing
        return "init", {"sessions": [conversing.fields(session)] if conversing.exists(session) else []}
    return "init", {"sessions": listed.whole()}


def told_of(conversing: Conversing, items: list[Any], session: str | None) -> list[tuple[str, list[Telling]]]:
    """What the client is told of each event, with its place."""
    found = []
    for place, item in items:
        tellings = list(_tellings(conversing, item.event, session))
        if tellings:
            found.append((place, tellings))
    return found


def _tellings(conversing: Conversing, event: Located, session: str | None) -> list[Telling]:
    name, _, entry = event.detail.partition(" ")
    if event.event in ("told", "session_deleted"):
        if session not in (None, name):
            return []
        if event.event == "session_deleted":
            return [("session_deleted", {"session_id": name, "runs_deleted": 0})]
        told = conversing.told_one(name, entry)
        return [("event", {"data": {"session_id": name, **told}})] if told is not None else []
    if not event.session or session not in (None, event.session) or event.event in PASSED_OVER:
        return []
    return _of_run(conversing, event)


def _of_run(conversing: Conversing, event: Located) -> list[Telling]:
    try:
        run, fields = conversing.records.get(event.run), conversing.fields(event.session)
    except NotFound:
        return []
    begins = event.event == "submitted" and Notes.of(run.spec).type == START
    if begins:
        # Its clients wait to see it pending, however soon it was claimed.
        fields |= {"status": PENDING}
    tellings: list[Telling] = []
    if event.state is State.FAILED:
        body = {"run_id": run.id, "error": error_of(run), "session_id": fields["session_id"]}
        tellings.append(("run_failed", body))
    tellings.append(("session_created" if begins else "session_updated", {"session": fields}))
    return tellings
