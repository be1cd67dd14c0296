"""Runs: submit, list, read, wait."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Path, Query, Request
from starlette.responses import Response

from agentq.coordinator import tracing
from agentq.coordinator.bounds import LIST_PER_CALL
from agentq.coordinator.explain.submission import check_submission
from agentq.coordinator.model import ids
from agentq.coordinator.model.lifecycle import TERMINAL_STATES, OutcomeClass, State
from agentq.coordinator.runs.queries import RunFilter
from agentq.coordinator.runs.run_record import RunRecord
from agentq.server import submission
from agentq.server.auth.access_control import Principal, require_scope
from agentq.server.dialect import ListPage
from agentq.server.http import responses
from agentq.server.http.disconnect import watch_disconnect
from agentq.server.http.fast_routes import FastRoute
from agentq.server.http.parameters import COMMA_SEPARATED, ONLY_KNOWN_PARAMETERS
from agentq.server.service import ServerService, get_service

router = APIRouter(prefix="/runs", tags=["runs"], route_class=FastRoute, dependencies=[ONLY_KNOWN_PARAMETERS])

WAIT_S_MAX = 60
RunIdPath = Annotated[str, Path(description="The id of a run.", examples=["run_01k9zq3c5007m2x4c8r1tnq"])]
WaitQuery = Annotated[float, Query(ge=0, le=WAIT_S_MAX, description="The most seconds to wait.")]


def check_run_id(service: ServerService, run_id: str) -> None:
    """Refuse an invalid run id; a dialect may refuse ids in its own format first."""
    for dialect in service.dialects:
        dialect.check_run_id(run_id)
    ids.check_run_id(run_id)


async def get_visible_run(service: ServerService, caller: Principal, run_id: str) -> RunRecord:
    """A run that the caller may read."""
    check_run_id(service, run_id)
    run = await service.call_in_thread(service.run_queries.get, run_id)
    caller.check_queue(run.spec.queue)
    return run


async def check_run_queue(service: ServerService, caller: Principal, run_id: str) -> None:
    """Refuse a run of a queue that the caller's token is not for."""
    check_run_id(service, run_id)
    if caller.queues:
        await get_visible_run(service, caller, run_id)


@router.post("", status_code=201, summary="Submit one run or several")
async def submit_runs(
    request: Request,
    caller: Annotated[Principal, require_scope("submit", by_queue=True)],
    durable: Annotated[bool, Query(description="Answer only when it is on the store's disk.")] = False,
    idempotency_key: Annotated[
        str | None, Header(description="Sent again with the same body within a day, it is answered as the first time.")
    ] = None,
    run_id: Annotated[
        str | None, Query(alias="id", description="The id that one run is to have; sent again it changes nothing.")
    ] = None,
) -> Response:
    """Submit one run, or `{"runs": […]}`. All of them are checked before the first is submitted."""
    service, body = get_service(request), await request.body()
    value = submission.parse_json(body)
    for dialect in service.dialects:
        if (accepted := await dialect.submit_run(request, caller, value, idempotency_key)) is not None:
            return accepted
    trace = request.scope["state"].get("traceparent") or tracing.validate_traceparent(
        request.headers.get("traceparent")
    )
    what = submission.parse_submit_body(body, value)._replace(trace=trace)
    answer = await submission.submit(service, caller, what, key=idempotency_key, durable=durable, run_id=run_id)
    if what.many:
        request.state.made = [f"/runs/{each['id']}" for each in answer.body["runs"] if each["created"]]
    headers = None if what.many else {"location": f"/runs/{answer.body['id']}"}
    return responses.json_response(answer.body, answer.status, headers)


@router.post("/check", summary="Check runs without submitting them")
async def check_runs(
    request: Request, caller: Annotated[Principal, require_scope("submit", by_queue=True)]
) -> Response:
    """What is strange about `{"runs": […]}`: limits that are not set, agents and demands that no worker offers. They
    would be taken all the same, and wait."""
    service, body = get_service(request), await request.body()
    submitted = submission.parse_submit_body(body, submission.parse_json(body))
    for spec in submitted.specs:
        caller.check_queue(spec.queue)
    found = await service.call_in_thread(check_submission, service.store, submitted.specs)
    unmet = [{"lane": lane, **problem._asdict()} for lane, problem in found.unmet.items()]
    return responses.json_response({**found._asdict(), "unmet": unmet})


@router.get("", summary="List runs, newest first")
async def list_runs(
    request: Request,
    caller: Annotated[Principal, require_scope("read", by_queue=True)],
    state: Annotated[list[State] | None, COMMA_SEPARATED, Query(description="Only those in these states.")] = None,
    queue: Annotated[str | None, Query(description="Only those of a queue.")] = None,
    plan: Annotated[str | None, Query(description="Only those of a plan.")] = None,
    session: Annotated[str | None, Query(description="Only those of a session.")] = None,
    outcome: Annotated[OutcomeClass | None, Query(description="Only those that ended with this class.")] = None,
    since_ms: Annotated[int | None, Query(ge=0, le=1 << 44, description="Only those made then or later.")] = None,
    until_ms: Annotated[int | None, Query(ge=0, le=1 << 44, description="Only those made before then.")] = None,
    ended_since_ms: Annotated[
        int | None, Query(ge=0, le=1 << 44, description="Only those that ended then or later.")
    ] = None,
    ended_until_ms: Annotated[int | None, Query(ge=0, le=1 << 44, description="Only those that ended by then.")] = None,
    made_by: Annotated[str, Query(max_length=64, description="Only those that the token of this id has made.")] = "",
    limit: Annotated[int, Query(ge=1, le=LIST_PER_CALL, description="The most entries.")] = 100,
    cursor: Annotated[str | None, Query(max_length=64, description="`next` of the page before.")] = None,
) -> Response:
    """A page of runs. It may be short, or empty, and not be the last: the last has no `next`."""
    service = get_service(request)
    if queue is not None:
        caller.check_queue(queue)
    states, queues = tuple(state or State), () if queue else caller.queues
    which = RunFilter(
        states, queue, queues, plan, session, since_ms, until_ms, outcome, ended_since_ms, ended_until_ms, made_by
    )
    for dialect in service.dialects:
        if (answer := await dialect.list_runs(request, which, ListPage(limit, cursor))) is not None:
            return answer
    found = await service.call_in_thread(service.run_queries.page, which, limit=limit, cursor=cursor)
    return responses.json_response({"runs": [service.views.run_entry(run) for run in found.runs], "next": found.cursor})


@router.get("/{run_id}", summary="Get a run, or wait for its end")
async def get_run(
    request: Request,
    run_id: RunIdPath,
    caller: Annotated[Principal, require_scope("read", by_queue=True)],
    wait: WaitQuery = 0,
) -> Response:
    """The record of a run. With `wait`, as soon as it has ended; with `If-None-Match` too, as soon as it has changed.

    When the time is over it is returned unchanged, or with 304.
    """
    service = get_service(request)
    check_run_id(service, run_id)
    if not wait:
        return responses.etag_response(request, service.views.run(await get_visible_run(service, caller, run_id)))
    conditional = "if-none-match" in request.headers
    with service.event_hub.watch_runs(run_id) as watch:
        last: list[RunRecord] = [await get_visible_run(service, caller, run_id)]

        async def read() -> RunRecord | None:
            last[0] = await get_visible_run(service, caller, run_id)
            if not conditional:
                return last[0] if last[0].state in TERMINAL_STATES else None
            tag = responses.compute_etag(responses.encode_json(service.views.run(last[0])))
            return None if responses.matches_etag(request, tag) else last[0]

        await service.wait_until(watch, read, wait, await watch_disconnect(request))
    return responses.etag_response(request, service.views.run(last[0]))
