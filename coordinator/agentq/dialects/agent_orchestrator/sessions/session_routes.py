"""Routes for sessions that only executors and clients of the dialect use."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Annotated, Any, ParamSpec, TypeVar

from fastapi import APIRouter, Depends, Header, Query, Request
from starlette.responses import JSONResponse, Response

from agentq.coordinator.errors import NotFound
from agentq.coordinator.model.field_types import ENTRY_ID_PATTERN
from agentq.coordinator.security.tokens import TokenScope
from agentq.dialects.agent_orchestrator.auth import EVENT_TIMEOUT_S, ReportScope, retry_through_outage
from agentq.dialects.agent_orchestrator.dialect_table import find_dialect
from agentq.dialects.agent_orchestrator.runners.runner_routes import get_services, read_fields
from agentq.dialects.agent_orchestrator.sessions import event_stream
from agentq.dialects.agent_orchestrator.sessions.store import EVENTS_PER_PAGE
from agentq.dialects.agent_orchestrator.submission import DialectRunRequest, ReservedIds
from agentq.server.auth.access_control import Principal, TokenRecheck, require_scope
from agentq.server.auth.runner_scopes import ScopeOrRunner
from agentq.server.http import responses, sse
from agentq.server.http.problems import Denied
from agentq.server.service import get_service
from agentq.server.submission import SubmitResponse, execute_once

router = APIRouter(tags=["dialect sessions"])

STREAM_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {"description": "A stream of events, which has no end.", "content": {sse.MEDIA_TYPE: {}}},
}
ReadPrincipal = Annotated[Principal, Depends(ScopeOrRunner(TokenScope.READ))]
SubmitPrincipal = Annotated[Principal, require_scope("submit")]
ExecutorPrincipal = Annotated[Principal, Depends(ReportScope(EVENT_TIMEOUT_S))]
P = ParamSpec("P")
T = TypeVar("T")


@router.get("/sessions/by-name/{session_name}", summary="Get a session by its name")
async def get_session_by_name(request: Request, caller: ReadPrincipal, session_name: str) -> Response:
    services = get_services(request)

    def read() -> dict[str, Any]:
        session = services.executor_reports.get_permitted_name(session_name, caller.bound)
        fields = services.session_store.describe_visible(session)
        if fields is None:
            raise NotFound("Session not found")
        return fields

    return responses.json_response({"session": await get_service(request).call_in_thread(read)})


@router.get("/sessions/{session_id}/status", summary="Get the status of a session; `not_existent` for an unknown one")
async def get_session_status(request: Request, caller: ReadPrincipal, session_id: str) -> Response:
    services = get_services(request)

    def read() -> str:
        if services.session_store.exists(session_id):
            services.executor_reports.get_permitted_name(session_id, caller.bound)
        return services.session_store.read_visible_status(session_id)

    return JSONResponse({"status": await get_service(request).call_in_thread(read)})


@router.get("/sessions/{session_id}/result", summary="Get the newest result of a session")
async def get_session_result(request: Request, caller: ReadPrincipal, session_id: str) -> Response:
    services = get_services(request)

    def read() -> dict[str, Any]:
        return services.session_store.read_result(
            services.executor_reports.get_permitted_name(session_id, caller.bound)
        )

    return responses.json_response(await get_service(request).call_in_thread(read))


@router.get("/sessions/{session_id}/affinity", summary="Get where the conversation of a session runs")
async def get_session_affinity(request: Request, caller: ReadPrincipal, session_id: str) -> Response:
    session_store, executor_reports = get_services(request).session_store, get_services(request).executor_reports

    def read() -> dict[str, Any]:
        session = executor_reports.get_permitted_name(session_id, caller.bound)
        fields = session_store.read_fields(session)
        kept = {name: fields.get(name) or None for name in find_dialect(fields.get("dialect")).affinity_fields}
        return {"affinity": {"session_id": fields.get("given_id") or session, **kept}}

    return responses.json_response(await get_service(request).call_in_thread(read))


@router.get("/sessions/{session_id}/events", summary="The events of a session, the oldest first")
async def list_session_events(
    request: Request,
    caller: ReadPrincipal,
    session_id: str,
    after: Annotated[
        str,
        Query(max_length=40, pattern=rf"^({ENTRY_ID_PATTERN.strip('^$')})?$", description="`next` of the page before."),
    ] = "",
    limit: Annotated[int, Query(ge=1, le=EVENTS_PER_PAGE, description="The most entries.")] = EVENTS_PER_PAGE,
) -> Response:
    """A page of events; `next` is null on the last."""
    session_store, executor_reports = get_services(request).session_store, get_services(request).executor_reports

    def read() -> dict[str, Any]:
        events, last = session_store.read_events(
            executor_reports.get_permitted_name(session_id, caller.bound), after, limit
        )
        page = [{**each.event, "id": each.id, "run_id": each.run or None} for each in events]
        return {"events": page, "next": last}

    return responses.json_response(await get_service(request).call_in_thread(read))


@router.post("/sessions/{session_id}/events", status_code=201, summary="Add an event to a session")
async def report_event(request: Request, caller: ExecutorPrincipal, session_id: str) -> Response:
    fields = await read_fields(request)
    event_id = await _take_report(
        request, get_services(request).executor_reports.append_event, session_id, fields, caller.bound
    )
    return JSONResponse({"ok": True, "id": event_id}, 200 if "session_name" in fields else 201)


@router.post("/sessions/{session_id}/bind", summary="Bind a session to its executor")
async def bind_session(request: Request, caller: ExecutorPrincipal, session_id: str) -> Response:
    fields = await read_fields(request)
    return responses.json_response(
        await _take_report(
            request, get_services(request).executor_reports.bind_session, session_id, fields, caller.bound
        )
    )


@router.patch("/sessions/{session_id}/metadata", summary="Change fields of a session")
async def change_session(request: Request, caller: ExecutorPrincipal, session_id: str) -> Response:
    fields = await read_fields(request)
    return responses.json_response(
        await _take_report(
            request, get_services(request).executor_reports.change_metadata, session_id, fields, caller.bound
        )
    )


@router.post("/sessions/{session_id}/stop", summary="Stop the turns of a session")
async def stop_session(request: Request, caller: SubmitPrincipal, session_id: str) -> Response:  # noqa: ARG001
    return responses.json_response(
        await get_service(request).call_in_thread(get_services(request).stop_requests.stop_session, session_id)
    )


@router.delete("/sessions/{session_id}", summary="Delete an idle session")
async def delete_session(request: Request, caller: SubmitPrincipal, session_id: str) -> Response:  # noqa: ARG001
    session_store = get_services(request).session_store

    def discard() -> dict[str, Any]:
        session = session_store.get_name(session_id)
        counts = session_store.delete(session)
        return {
            "ok": True,
            "session_id": session_id,
            "deleted": counts,
            "runs_removed_from_cache": counts["runs_count"],
        }

    return responses.json_response(await get_service(request).call_in_thread(discard))


@router.post("/runs/{run_id}/stop", summary="Stop a run")
async def stop_run(request: Request, caller: SubmitPrincipal, run_id: str) -> Response:  # noqa: ARG001
    return responses.json_response(
        await get_service(request).call_in_thread(get_services(request).stop_requests.stop_run, run_id)
    )


@router.get("/sse/sessions", summary="Follow sessions", responses=STREAM_RESPONSES, openapi_extra={"x-stream": True})
async def follow_sessions(
    request: Request,
    caller: Annotated[Principal, require_scope("read")],  # noqa: ARG001
    session_id: Annotated[str | None, Query(max_length=128, description="Only this one.")] = None,
    include_init: Annotated[bool, Query(description="Begin with the sessions that there are.")] = True,
    last_event_id: Annotated[str | None, Header(alias="Last-Event-ID")] = None,
) -> Response:
    """Sessions that begin, change and end, and the events of their executors, as server-sent events; with replay."""
    service, session_lister = get_service(request), get_services(request).session_lister
    session = (
        await service.call_in_thread(session_lister.session_store.get_name, session_id)
        if session_id is not None
        else None
    )
    positions = await service.feed.positions(event_stream.parse_event_id(last_event_id) if last_event_id else None)
    init = include_init and last_event_id is None
    return sse.SseResponse(
        event_stream.stream_sessions(service, session_lister, positions, session, init=init), TokenRecheck(request)
    )


async def submit_dialect_run(request: Request, caller: Principal, body: Any, key: str | None) -> Response:
    """Answer a body of `POST /runs` in a dialect; with a key, it is executed once."""
    run_request = DialectRunRequest.read(body)
    if caller.queues:
        queues = ", ".join(caller.queues)
        raise Denied(f"This token is only for the queues {queues}; sessions are in no queue.")
    service, submitter = get_service(request), get_services(request).submitter

    async def submit_reserved(first: dict[str, Any]) -> SubmitResponse:
        accepted = await service.call_in_thread(submitter.submit, run_request, ReservedIds(**first))
        return SubmitResponse(accepted.status, accepted.body())

    if key is None:
        accepted = await service.call_in_thread(submitter.submit, run_request)
        answer = SubmitResponse(accepted.status, accepted.body())
    else:
        reserved = await service.call_in_thread(submitter.reserve_ids, run_request)
        digest = sha256(run_request.model_dump_json().encode()).hexdigest()
        answer = await execute_once(service, caller, key, digest, reserved._asdict(), submit_reserved)
    return JSONResponse(answer.body, answer.status, {"location": f"/runs/{answer.body['run_id']}"})


async def begin_session(request: Request, caller: Principal, body: Any) -> Response:
    """Answer a body of `POST /sessions` from an executor."""
    return responses.json_response(
        await _take_report(request, get_services(request).executor_reports.begin_session, body, caller.bound)
    )


async def _take_report(request: Request, function: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
    """Handle an executor's report as soon as the store can be reached, before the executor gives up."""
    service = get_service(request)
    return await retry_through_outage(
        service, EVENT_TIMEOUT_S, lambda: service.call_in_thread(function, *args, **options)
    )


async def list_all_sessions(request: Request, caller: Principal) -> Response:
    """Answer a request for a list of sessions without a page."""
    services = get_services(request)
    return responses.json_response(
        {"sessions": await get_service(request).call_in_thread(services.session_lister.list_all, caller.bound)}
    )


def find_session(request: Request, caller: Principal, name: str) -> dict[str, Any] | None:
    """A session in the dialect's format, by any of its names; None if there is none. Reads the store."""
    services = get_services(request)
    if not services.session_store.exists(name):
        return None
    return services.session_store.describe(services.executor_reports.get_permitted_name(name, caller.bound))
