"""What happens, as it happens: of everything, of what a filter lets pass, or of a run; as server-sent events, or over a
WebSocket."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Query, Request, WebSocket, WebSocketDisconnect
from pydantic_core import to_json
from starlette.responses import Response

from agentq.coordinator.clock import monotonic_ms
from agentq.coordinator.errors import NotAllowed, TryLater, Unreachable
from agentq.coordinator.identity import partition_of
from agentq.coordinator.interest import Interest
from agentq.coordinator.lifecycle import TERMINAL
from agentq.coordinator.server import live, sse
from agentq.coordinator.server.access import Principal, Standing, allowed
from agentq.coordinator.server.parameters import only
from agentq.coordinator.server.service import Service, service_of

router = APIRouter(tags=["events"])

PARTS = ("event", "run", "queue", "plan", "session", "state")
STREAM: dict[int | str, dict[str, Any]] = {
    200: {"description": "A stream of events, which has no end.", "content": {sse.MEDIA_TYPE: {}}},
}
OUTAGE_S = 1.0
SEND_S = 20.0
"""How long a WebSocket may take no message before it is closed."""

Names = Annotated[list[str], Query(description="names, also with commas between them; one of them is enough")]
After = Annotated[
    str | None, Query(description="the place to go on from, as Last-Event-ID; `0-0` for all that is kept")
]
Last = Annotated[str | None, Header(alias="Last-Event-ID", description="the id of the last event that was seen")]
Follow = Annotated[bool, Query(description="go on with what happens from now on; without, `end` is the last event")]
RunId = Annotated[str, Path(description="the id of a run")]
Reader = Annotated[Principal, allowed("read", by_queue=True)]


@router.get("/events", summary="Follow what happens", responses=STREAM, openapi_extra={"x-stream": True})
async def events(
    request: Request,
    principal: Reader,
    event: Names = [],  # noqa: B006 - as FastAPI has it
    run: Names = [],  # noqa: B006
    queue: Names = [],  # noqa: B006
    plan: Names = [],  # noqa: B006
    session: Names = [],  # noqa: B006
    state: Names = [],  # noqa: B006
    after: After = None,
    follow: Follow = True,
    last_event_id: Last = None,
) -> Response:
    """Everything that happens from now on, or after the event that `Last-Event-ID` names, as server-sent events.

    The parts of the filter must all fit. An event is named as in the lifecycle; `gap` says that events are gone that
    the client has not seen, because the store keeps only so many.
    """
    service = service_of(request)
    only(request.query_params, (*PARTS, "after", "follow"))
    asked = dict(zip(PARTS, (event, run, queue, plan, session, state), strict=True))
    interest = Interest.asked(asked).within(principal.queues or None)
    places = await service.feed.places(last_event_id or after)
    return sse.EventStream((live.events if follow else live.so_far)(service, interest, places), Standing(request))


@router.get(
    "/runs/{run_id}/events",
    summary="Follow what happens to a run",
    responses={**STREAM, 204: {"description": "The run has ended, and the client has seen everything."}},
    openapi_extra={"x-stream": True},
)
async def events_of(
    request: Request,
    principal: Reader,
    run_id: RunId,
    after: After = None,
    follow: Follow = True,
    last_event_id: Last = None,
) -> Response:
    """All that has happened to a run and is kept, and what does until it has ended; `end` is the last event."""
    service = service_of(request)
    only(request.query_params, ("after", "follow"))
    found = await service.ask(service.records.get, run_id)
    principal.check_queue(found.spec.queue)
    birth = f"{max(0, found.submitted_at_ms - 1)}-0"
    place = last_event_id or after or birth
    places = await service.feed.places(place, [partition_of(run_id)])
    if last_event_id and found.state in TERMINAL:
        unseen = live.past(service, Interest(runs=(run_id,)), places)
        if await anext(unseen, None) is None:
            return Response(status_code=204)
        await unseen.aclose()
    if not follow:
        return sse.EventStream(live.so_far(service, Interest(runs=(run_id,)), places), Standing(request))
    return sse.EventStream(live.events_of(service, run_id, places, whole=place == birth), Standing(request))


@router.websocket("/events/ws")
async def events_ws(socket: WebSocket, principal: Reader) -> None:
    """The same as messages: `{"id", "event", "data"}`, the first of them `ready`; `gap` and `alive` as there."""
    service = service_of(socket)
    query = socket.query_params
    only(query, (*PARTS, "after"))
    interest = Interest.asked({part: query.getlist(part) for part in PARTS}).within(principal.queues or None)
    places = await service.feed.places(socket.headers.get("last-event-id") or query.get("after"))
    await socket.accept()
    await run_until_gone(socket, _tell(service, socket, interest, places))


async def run_until_gone(socket: WebSocket, telling: Coroutine[Any, Any, None]) -> None:
    """Run what tells a client something, until it has ended or the client has gone."""
    tasks = [asyncio.ensure_future(each) for each in (until_gone(socket), telling)]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def until_gone(socket: WebSocket) -> None:
    """Whatever the client says is passed over; there is nothing to say."""
    while (await socket.receive())["type"] != "websocket.disconnect":
        continue


async def _tell(service: Service, socket: WebSocket, interest: Interest, places: Mapping[int, str]) -> None:
    standing = Standing(socket)
    with service.feed.reader(interest, dict(places)) as reader:
        await _send(socket, "ready", reader.place)
        quiet_at_ms = monotonic_ms() + live.KEEPALIVE_MS
        while not service.tides.closing:
            try:
                batch = await reader.next(max(0, quiet_at_ms - monotonic_ms()) / 1000)
            except (Unreachable, TryLater):
                await asyncio.sleep(OUTAGE_S)
                continue
            try:
                await standing.check()
            except NotAllowed as refused:
                await socket.close(1008, str(refused)[:120])
                return
            if batch.gap:
                await _send(socket, live.GAP, batch.place, to_json({"after": batch.gap}).decode())
            for place, item in batch.items:
                await _send(socket, item.event.event, place, item.words)
            if batch.items or batch.gap:
                quiet_at_ms = monotonic_ms() + live.KEEPALIVE_MS
            elif monotonic_ms() >= quiet_at_ms:
                await _send(socket, "alive", batch.place)
                quiet_at_ms = monotonic_ms() + live.KEEPALIVE_MS
    await socket.close(1001, "the server ends; come back")


async def _send(socket: WebSocket, name: str, place: str, data: str = "null") -> None:
    text = f'{{"id":"{place}","event":"{name}","data":{data}}}'
    try:
        async with asyncio.timeout(SEND_S):
            await socket.send_text(text)
    except (TimeoutError, RuntimeError) as error:
        raise WebSocketDisconnect(1006) from error
