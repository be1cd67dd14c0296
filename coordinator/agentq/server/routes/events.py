"""Event streams: of everything, of a filter, or of one run; as server-sent events or over a WebSocket."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Query, Request, WebSocket, WebSocketDisconnect
from pydantic_core import to_json
from starlette.responses import Response

from agentq.coordinator.bounds import EVENTS_KEPT
from agentq.coordinator.clock import monotonic_ms
from agentq.coordinator.errors import NotAllowed, TryLater, Unreachable
from agentq.coordinator.events.event_filter import EventFilter
from agentq.coordinator.events.recent import read_recent_events
from agentq.coordinator.model.ids import check_run_id, partition_of
from agentq.coordinator.model.lifecycle import TERMINAL_STATES
from agentq.server.auth.access_control import Principal, TokenRecheck, require_scope
from agentq.server.events import sse_streams
from agentq.server.http import responses, sse
from agentq.server.http.parameters import ONLY_KNOWN_PARAMETERS, check_parameter_names
from agentq.server.service import ServerService, get_service

router = APIRouter(tags=["events"])

FILTER_PARTS = ("event", "run", "queue", "plan", "session", "state")
STREAM_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {"description": "A stream of events, which has no end.", "content": {sse.MEDIA_TYPE: {}}},
}
OUTAGE_PAUSE_S = 1.0
SEND_TIMEOUT_S = 20.0
"""How long a WebSocket may accept no message before it is closed."""

NamesQuery = Annotated[list[str], Query(description="names, also with commas between them; one of them is enough")]
AfterQuery = Annotated[
    str | None, Query(description="the position to continue from, as Last-Event-ID; `0-0` for all stored events")
]
LastEventIdHeader = Annotated[
    str | None, Header(alias="Last-Event-ID", description="the id of the last event that was seen")
]
FollowQuery = Annotated[bool, Query(description="continue with new events; without, `end` is the last event")]
RunIdPath = Annotated[str, Path(description="the id of a run")]
ReadPrincipal = Annotated[Principal, require_scope("read", by_queue=True)]


@router.get("/events", summary="Follow events", responses=STREAM_RESPONSES, openapi_extra={"x-stream": True})
async def follow_events(
    request: Request,
    principal: ReadPrincipal,
    event: NamesQuery = [],  # noqa: B006 - as FastAPI has it
    run: NamesQuery = [],  # noqa: B006
    queue: NamesQuery = [],  # noqa: B006
    plan: NamesQuery = [],  # noqa: B006
    session: NamesQuery = [],  # noqa: B006
    state: NamesQuery = [],  # noqa: B006
    after: AfterQuery = None,
    follow: FollowQuery = True,
    last_event_id: LastEventIdHeader = None,
) -> Response:
    """Events from now on, or after the event that `Last-Event-ID` names, as server-sent events.

    All parts of the filter must match. Events are named as in the lifecycle; `gap` says that events are gone which the
    client has not seen, because the store keeps a limited number.
    """
    service = get_service(request)
    check_parameter_names(request.query_params, (*FILTER_PARTS, "after", "follow"))
    asked = dict(zip(FILTER_PARTS, (event, run, queue, plan, session, state), strict=True))
    interest = EventFilter.asked(asked).within(principal.queues or None)
    positions = await service.feed.positions(last_event_id or after)
    return sse.SseResponse(
        (sse_streams.stream_events if follow else sse_streams.stream_past_events)(service, interest, positions),
        TokenRecheck(request),
    )


@router.get("/events/recent", summary="The newest events", dependencies=[ONLY_KNOWN_PARAMETERS])
async def list_recent_events(
    request: Request,
    principal: ReadPrincipal,
    run: Annotated[str | None, Query(max_length=64, description="Only those of this run.")] = None,
    since_ms: Annotated[int, Query(ge=0, le=1 << 44, description="Only those that happened then or later.")] = 0,
    limit: Annotated[int, Query(ge=0, le=EVENTS_KEPT, description="At most so many.")] = 100,
) -> Response:
    """In the order of their times. `next` is where `GET /events` goes on after them."""
    service = get_service(request)
    if run is not None:
        check_run_id(run)
    found = await service.call_in_thread(
        read_recent_events,
        service.store,
        limit,
        since_ms=since_ms,
        run_id=run,
        within=EventFilter().within(principal.queues) if principal.queues else None,
    )
    return responses.json_response({"events": [event.public_json() for event in found.events], "next": found.position})


@router.get(
    "/runs/{run_id}/events",
    summary="Follow the events of a run",
    responses={**STREAM_RESPONSES, 204: {"description": "The run has ended, and the client has seen everything."}},
    openapi_extra={"x-stream": True},
)
async def follow_run_events(
    request: Request,
    principal: ReadPrincipal,
    run_id: RunIdPath,
    after: AfterQuery = None,
    follow: FollowQuery = True,
    last_event_id: LastEventIdHeader = None,
) -> Response:
    """All stored events of a run and its further events until it has ended; `end` is the last event."""
    service = get_service(request)
    check_parameter_names(request.query_params, ("after", "follow"))
    found = await service.call_in_thread(service.run_queries.get, run_id)
    principal.check_queue(found.spec.queue)
    birth = f"{max(0, found.submitted_at_ms - 1)}-0"
    position = last_event_id or after or birth
    positions = await service.feed.positions(position, [partition_of(run_id)])
    if last_event_id and found.state in TERMINAL_STATES:
        unseen = sse_streams.read_past_events(service, EventFilter(runs=(run_id,)), positions)
        if await anext(unseen, None) is None:
            return Response(status_code=204)
        await unseen.aclose()
    if not follow:
        return sse.SseResponse(
            sse_streams.stream_past_events(service, EventFilter(runs=(run_id,)), positions), TokenRecheck(request)
        )
    return sse.SseResponse(
        sse_streams.stream_run_events(service, run_id, positions, from_start=position == birth), TokenRecheck(request)
    )


@router.websocket("/events/ws")
async def follow_events_ws(socket: WebSocket, principal: ReadPrincipal) -> None:
    """Events as messages `{"id", "event", "data"}`. The first message is `ready`; `gap` and `alive` are sent as
    needed."""
    service = get_service(socket)
    query = socket.query_params
    check_parameter_names(query, (*FILTER_PARTS, "after"))
    interest = EventFilter.asked({part: query.getlist(part) for part in FILTER_PARTS}).within(principal.queues or None)
    positions = await service.feed.positions(socket.headers.get("last-event-id") or query.get("after"))
    await socket.accept()
    await run_until_disconnect(socket, _send_events(service, socket, interest, positions))


async def run_until_disconnect(socket: WebSocket, sending: Coroutine[Any, Any, None]) -> None:
    """Run a sending coroutine until it ends or the client disconnects."""
    tasks = [asyncio.ensure_future(each) for each in (wait_for_disconnect(socket), sending)]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def wait_for_disconnect(socket: WebSocket) -> None:
    """Ignore the client's messages until it disconnects."""
    while (await socket.receive())["type"] != "websocket.disconnect":
        continue


async def _send_events(
    service: ServerService, socket: WebSocket, interest: EventFilter, positions: Mapping[int, str]
) -> None:
    recheck = TokenRecheck(socket)
    with service.feed.reader(interest, dict(positions)) as reader:
        await _send_message(socket, "ready", reader.position)
        quiet_at_ms = monotonic_ms() + sse_streams.KEEPALIVE_MS
        while not service.event_hub.closing:
            try:
                batch = await reader.next(max(0, quiet_at_ms - monotonic_ms()) / 1000)
            except (Unreachable, TryLater):
                await asyncio.sleep(OUTAGE_PAUSE_S)
                continue
            try:
                await recheck.check()
            except NotAllowed as refused:
                await socket.close(1008, str(refused)[:120])
                return
            if batch.gap:
                await _send_message(
                    socket, sse_streams.GAP_EVENT, batch.position, to_json({"after": batch.gap}).decode()
                )
            for position, item in batch.items:
                await _send_message(socket, item.event.event, position, item.json_text)
            if batch.items or batch.gap:
                quiet_at_ms = monotonic_ms() + sse_streams.KEEPALIVE_MS
            elif monotonic_ms() >= quiet_at_ms:
                await _send_message(socket, "alive", batch.position)
                quiet_at_ms = monotonic_ms() + sse_streams.KEEPALIVE_MS
    await socket.close(1001, "the server ends; come back")


async def _send_message(socket: WebSocket, name: str, position: str, data: str = "null") -> None:
    text = f'{{"id":"{position}","event":"{name}","data":{data}}}'
    try:
        async with asyncio.timeout(SEND_TIMEOUT_S):
            await socket.send_text(text)
    except (TimeoutError, RuntimeError) as error:
        raise WebSocketDisconnect(1006) from error
