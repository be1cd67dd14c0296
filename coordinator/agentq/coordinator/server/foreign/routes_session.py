"""What foreign executors and clients call of sessions, beside what all have of them."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Annotated, Any, ParamSpec, TypeVar

from fastapi import APIRouter, Depends, Header, Query, Request
from starlette.responses import JSONResponse, Response

from agentq.coordinator.errors import NotFound
from agentq.coordinator.fields import PLACE
from agentq.coordinator.server import sse, views
from agentq.coordinator.server.access import Principal, Standing, allowed
from agentq.coordinator.server.foreign import live
from agentq.coordinator.server.foreign.admitting import EVENT_S, OrRunner, ToReport, held
from agentq.coordinator.server.foreign.asking import Asked, Made
from agentq.coordinator.server.foreign.conversing import EVENTS_A_PAGE
from agentq.coordinator.server.foreign.dialects import dialect
from agentq.coordinator.server.foreign.routes_runner import embassy_of, fields_of
from agentq.coordinator.server.problems import Denied
from agentq.coordinator.server.service import service_of
from agentq.coordinator.server.submitting import Answer, once
from agentq.coordinator.tokens import Scope

router = APIRouter(tags=["foreign sessions"])

STREAM: dict[int | str, dict[str, Any]] = {
    200: {"description": "A stream of events, which has no end.", "content": {sse.MEDIA_TYPE: {}}},
}
Reader = Annotated[Principal, Depends(OrRunner(Scope.READ))]
Submitter = Annotated[Principal, allowed("submit")]
Executor = Annotated[Principal, Depends(ToReport(EVENT_S))]
P = ParamSpec("P")
T = TypeVar("T")


@router.get("/sessions/by-name/{session_name}", summary="A session by its name")
async def by_name(request: Request, caller: Reader, session_name: str) -> Response:
    embassy = embassy_of(request)

    def look() -> dict[str, Any]:
        session = embassy.attending.permitted(session_name, caller.bound)
        fields = embassy.conversing.begun(session)
        if fields is None:
            raise NotFound("Session not found")
        return fields

    return views.told({"session": await service_of(request).ask(look)})


@router.get("/sessions/{session_id}/status", summary="The status of a session; `not_existent` of one that is not there")
async def status(request: Request, caller: Reader, session_id: str) -> Response:
    embassy = embassy_of(request)

    def look() -> str:
        if embassy.conversing.exists(session_id):
            embassy.attending.permitted(session_id, caller.bound)
        return embassy.conversing.status(session_id)

    return JSONResponse({"status": await service_of(request).ask(look)})


@router.get("/sessions/{session_id}/result", summary="The newest result of a session")
async def result(request: Request, caller: Reader, session_id: str) -> Response:
    embassy = embassy_of(request)

    def look() -> dict[str, Any]:
        return embassy.conversing.result(embassy.attending.permitted(session_id, caller.bound))

    return views.told(await service_of(request).ask(look))


@router.get("/sessions/{session_id}/affinity", summary="Where the conversation of a session is")
async def affinity(request: Request, caller: Reader, session_id: str) -> Response:
    conversing, attending = embassy_of(request).conversing, embassy_of(request).attending

    def look() -> dict[str, Any]:
        session = attending.permitted(session_id, caller.bound)
        about = conversing.about(session)
        kept = {name: about.get(name) or None for name in dialect(about.get("dialect")).affinity}
        return {"affinity": {"session_id": about.get("given_id") or session, **kept}}

    return views.told(await service_of(request).ask(look))


@router.get("/sessions/{session_id}/events", summary="What executors told of a session, the oldest first")
async def events(
    request: Request,
    caller: Reader,
    session_id: str,
    after: Annotated[
        str, Query(max_length=40, pattern=rf"^({PLACE.strip('^$')})?$", description="`next` of the page before.")
    ] = "",
    limit: Annotated[int, Query(ge=1, le=EVENTS_A_PAGE, description="At most so many.")] = EVENTS_A_PAGE,
) -> Response:
    """A page of them; `next` is null on the last."""
    conversing, attending = embassy_of(request).conversing, embassy_of(request).attending

    def look() -> dict[str, Any]:
        told, last = conversing.told(attending.permitted(session_id, caller.bound), after, limit)
        page = [{**each.event, "id": each.id, "run_id": each.run or None} for each in told]
        return {"events": page, "next": last}

    return views.told(await service_of(request).ask(look))


@router.post("/sessions/{session_id}/events", status_code=201, summary="Tell what happens in a session")
async def tell(request: Request, caller: Executor, session_id: str) -> Response:
    fields = await fields_of(request)
    told = await _said(request, embassy_of(request).attending.tell, session_id, fields, caller.bound)
    return JSONResponse({"ok": True, "id": told}, 200 if "session_name" in fields else 201)


@router.post("/sessions/{session_id}/bind", summary="An executor has begun a session's turn")
async def bind(request: Request, caller: Executor, session_id: str) -> Response:
    fields = await fields_of(request)
    return views.told(await _said(request, embassy_of(request).attending.bind, session_id, fields, caller.bound))


@router.patch("/sessions/{session_id}/metadata", summary="Change what is known of a session")
async def change(request: Request, caller: Executor, session_id: str) -> Response:
    fields = await fields_of(request)
    return views.told(await _said(request, embassy_of(request).attending.change, session_id, fields, caller.bound))


@router.post("/sessions/{session_id}/stop", summary="Stop all that a session does")
async def stop(request: Request, caller: Submitter, session_id: str) -> Response:  # noqa: ARG001
    return views.told(await service_of(request).ask(embassy_of(request).stopping.stop_session, session_id))


@router.delete("/sessions/{session_id}", summary="Delete a session that does nothing")
async def delete(request: Request, caller: Submitter, session_id: str) -> Response:  # noqa: ARG001
    conversing = embassy_of(request).conversing

    def discard() -> dict[str, Any]:
        session = conversing.found(session_id)
        counts = conversing.discard(session)
        return {
            "ok": True,
            "session_id": session_id,
            "deleted": counts,
            "runs_removed_from_cache": counts["runs_count"],
        }

    return views.told(await service_of(request).ask(discard))


@router.post("/runs/{run_id}/stop", summary="Stop a run")
async def stop_run(request: Request, caller: Submitter, run_id: str) -> Response:  # noqa: ARG001
    return views.told(await service_of(request).ask(embassy_of(request).stopping.stop_run, run_id))


@router.get("/sse/sessions", summary="Follow sessions", responses=STREAM, openapi_extra={"x-stream": True})
async def follow(
    request: Request,
    caller: Annotated[Principal, allowed("read")],  # noqa: ARG001
    session_id: Annotated[str | None, Query(max_length=128, description="Only this one.")] = None,
    include_init: Annotated[bool, Query(description="Begin with the sessions that there are.")] = True,
    last_event_id: Annotated[str | None, Header(alias="Last-Event-ID")] = None,
) -> Response:
    """Sessions that begin, change and end, and what executors tell of them, as server-sent events; with replay."""
    service, listed = service_of(request), embassy_of(request).session_list
    session = await service.ask(listed.conversing.found, session_id) if session_id is not None else None
    places = await service.feed.places(live.place_of(last_event_id) if last_event_id else None)
    init = include_init and last_event_id is None
    return sse.EventStream(live.sessions(service, listed, places, session, init=init), Standing(request))


async def submitted(request: Request, caller: Principal, body: Any, key: str | None) -> Response:
    """The answer to a body of `POST /runs` that is in a dialect; with a key, it is done once."""
    asked = Asked.read(body)
    if caller.queues:
        queues = ", ".join(caller.queues)
        raise Denied(f"This token is good only for what is in the queues {queues}; a session is in none.")
    service, asking = service_of(request), embassy_of(request).asking

    async def act(first: dict[str, Any]) -> Answer:
        accepted = await service.ask(asking.submit, asked, Made(**first))
        return Answer(accepted.status, accepted.body())

    if key is None:
        accepted = await service.ask(asking.submit, asked)
        answer = Answer(accepted.status, accepted.body())
    else:
        made = await service.ask(asking.make, asked)
        digest = sha256(asked.model_dump_json().encode()).hexdigest()
        answer = await once(service, caller, key, digest, made._asdict(), act)
    return JSONResponse(answer.body, answer.status, {"location": f"/runs/{answer.body['run_id']}"})


async def begun(request: Request, caller: Principal, body: Any) -> Response:
    """The answer to a body of `POST /sessions` that is of an executor."""
    return views.told(await _said(request, embassy_of(request).attending.begin, body, caller.bound))


async def _said(request: Request, act: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
    """What an executor says is taken once the store can be reached, if that is before it gives up."""
    service = service_of(request)
    return await held(service, EVENT_S, lambda: service.ask(act, *args, **options))


async def all_sessions(request: Request, caller: Principal) -> Response:
    """The answer to a list of sessions that was asked for without a page."""
    embassy = embassy_of(request)
    return views.told({"sessions": await service_of(request).ask(embassy.session_list.whole, caller.bound)})


def named(request: Request, caller: Principal, name: str) -> dict[str, Any] | None:
    """A session in the words of the dialects, by any of its names; None if there is none. It asks the store."""
    embassy = embassy_of(request)
    if not embassy.conversing.exists(name):
        return None
    return embassy.conversing.fields(embassy.attending.permitted(name, caller.bound))
