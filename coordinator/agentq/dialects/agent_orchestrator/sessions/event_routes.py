"""Routes for events in the oldest dialects: all events of a session, a report that names its session, and a
WebSocket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, WebSocket, WebSocketDisconnect
from starlette.responses import JSONResponse, Response

from agentq.coordinator.errors import NotAllowed, TryLater, Unreachable
from agentq.coordinator.events.event_filter import EventFilter
from agentq.coordinator.security.tokens import TokenScope
from agentq.dialects.agent_orchestrator.blueprints.responses import Fields
from agentq.dialects.agent_orchestrator.runners.runner_routes import get_services, read_fields
from agentq.dialects.agent_orchestrator.services import DialectServices
from agentq.dialects.agent_orchestrator.sessions import event_stream
from agentq.dialects.agent_orchestrator.sessions.session_list import SessionLister
from agentq.dialects.agent_orchestrator.sessions.session_routes import ExecutorPrincipal
from agentq.dialects.agent_orchestrator.sessions.store import PAGE_BYTES_MAX, DialectSessionStore
from agentq.server.auth.access_control import Principal, TokenRecheck, require_scope
from agentq.server.auth.runner_scopes import ScopeOrRunner
from agentq.server.http import responses
from agentq.server.routes.events import run_until_disconnect
from agentq.server.service import ServerService, get_service

router = APIRouter(tags=["dialect sessions"])

SESSION_START_EVENT = "session_start"
"""The event by which hooks of the oldest programs begin a session."""
SEND_TIMEOUT_S = 20.0
KEEPALIVE_S = 30.0


@router.get("/events/{session_id}", summary="The events of a session; none of an unknown one")
async def list_all_events(
    request: Request, caller: Annotated[Principal, Depends(ScopeOrRunner(TokenScope.READ))], session_id: str
) -> Response:
    """All events, the oldest first. `/sessions/{session_id}/events` has them in pages, and answers 404 for an unknown
    session."""
    services = get_services(request)

    def read() -> list[Fields]:
        if not services.session_store.exists(session_id):
            return []
        return _read_all_events(
            services.session_store, services.executor_reports.get_permitted_name(session_id, caller.bound)
        )

    return responses.json_response({"events": await get_service(request).call_in_thread(read)})


def _read_all_events(session_store: DialectSessionStore, session: str) -> list[Fields]:
    """All stored events of a session, for clients without pages."""
    found, after, size = list[Fields](), "", 0
    while size < PAGE_BYTES_MAX:
        events, last = session_store.read_events(session, after)
        found += ({**each.event, "id": each.id, "run_id": each.run or None} for each in events)
        if last is None:
            break
        after, size = last, size + sum(len(str(each.event)) for each in events)
    return found


@router.post("/events", summary="Add an event to the session that the body names")
async def report_named_event(request: Request, caller: ExecutorPrincipal) -> Response:
    """`session_start` begins a session that does not exist yet; all other events need an existing one."""
    services, fields = get_services(request), await read_fields(request)

    def take() -> None:
        named = str(fields.get("session_id") or "")
        if fields.get("event_type") == SESSION_START_EVENT and not services.session_store.exists(named):
            services.executor_reports.begin_session(fields, caller.bound)
        services.executor_reports.append_event(named, fields, caller.bound)

    await get_service(request).call_in_thread(take)
    return JSONResponse({"ok": True})


@router.websocket("/ws")
async def follow_sessions_ws(socket: WebSocket, caller: Annotated[Principal, require_scope("read")]) -> None:  # noqa: ARG001
    """Session events as messages `{"type": …}`. The first one is `init`, with all sessions."""
    service, services = get_service(socket), get_services(socket)
    positions = await service.feed.positions(None)
    await socket.accept()
    await run_until_disconnect(socket, _send_events(service, services, socket, positions))


class SessionMessages:
    """The messages for one client. It first gets `session_created` for a session, and afterwards `session_updated`."""

    def __init__(self, session_lister: SessionLister) -> None:
        self.session_lister = session_lister
        self.session_store = session_lister.session_store
        self._known_sessions: set[str] = set()

    def build_init(self) -> list[Fields]:
        """The message with all sessions."""
        name, body = event_stream.build_init_event(self.session_lister, None)
        self._known_sessions = {each["session_id"] for each in body["sessions"]}
        return [{"type": name, **body}]

    def translate(self, items: list[Any]) -> list[Fields]:
        """The messages for some events."""
        named_events = (
            named_event
            for _, some in event_stream.translate_events(self.session_store, items, None)
            for named_event in some
        )
        return [message for name, body in named_events for message in self._translate_event(name, body)]

    def _translate_event(self, name: str, body: Fields) -> Iterator[Fields]:
        if name == "session_deleted":
            self._known_sessions.discard(body["session_id"])
            yield {"type": name, **body}
        elif name == "event":
            session = str(body["data"].get("session_id"))
            if session not in self._known_sessions and self.session_store.exists(session):
                yield from self._translate_session(
                    self.session_store.describe(str(self.session_store.resolve(session)))
                )
            yield {"type": name, **body}
        elif "session" in body:
            yield from self._translate_session(body["session"])

    def _translate_session(self, read: Fields) -> Iterator[Fields]:
        session = self.session_store.describe_visible(read["session_name"], read["status"])
        if session is None:
            return
        new = session["session_id"] not in self._known_sessions
        self._known_sessions.add(session["session_id"])
        yield {"type": "session_created" if new else "session_updated", "session": session}


async def _send_events(
    service: ServerService, services: DialectServices, socket: WebSocket, positions: dict[int, str]
) -> None:
    recheck, messages = TokenRecheck(socket), SessionMessages(services.session_lister)
    with service.feed.reader(EventFilter(), positions) as reader:
        await _send_messages(socket, await service.call_in_thread(messages.build_init))
        while not service.event_hub.closing:
            try:
                batch = await reader.next(KEEPALIVE_S)
                init = await service.call_in_thread(messages.build_init) if batch.gap else []
                translated = await service.call_in_thread(messages.translate, batch.items)
            except (Unreachable, TryLater):
                await asyncio.sleep(event_stream.OUTAGE_PAUSE_MS / 1000)
                continue
            try:
                await recheck.check()
            except NotAllowed as refused:
                await socket.close(1008, str(refused)[:120])
                return
            await _send_messages(socket, [*init, *translated])
    await socket.close(1001, "the server ends; come back")


async def _send_messages(socket: WebSocket, messages: list[Fields]) -> None:
    try:
        for message in messages:
            async with asyncio.timeout(SEND_TIMEOUT_S):
                await socket.send_text(json.dumps(message))
    except (TimeoutError, RuntimeError) as error:
        raise WebSocketDisconnect(1006) from error
