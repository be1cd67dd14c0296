"""Runs: submit them, look at them, wait for them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Path, Query, Request
from starlette.responses import Response

from agentq.coordinator import tracing
from agentq.coordinator.life import Run
from agentq.coordinator.lifecycle import TERMINAL, OutcomeClass, State
from agentq.coordinator.limits import LIST_A_CALL
from agentq.coordinator.records import Filter
from agentq.coordinator.server import foreign, submitting, views
from agentq.coordinator.server.access import Principal, allowed
from agentq.coordinator.server.departing import departing
from agentq.coordinator.server.foreign import check_run_id
from agentq.coordinator.server.foreign.routes_session import submitted
from agentq.coordinator.server.parameters import APART, KNOWN
from agentq.coordinator.server.quick import Quick
from agentq.coordinator.server.service import Service, service_of

router = APIRouter(prefix="/runs", tags=["runs"], route_class=Quick, dependencies=[KNOWN])

WAIT_S_MAX = 60
RunId = Annotated[str, Path(description="The id of a run.", examples=["run_01k9zq3c5007m2x4c8r1tnq"])]
Wait = Annotated[float, Query(ge=0, le=WAIT_S_MAX, description="Seconds to wait for it, at the most.")]


async def visible(service: Service, caller: Principal, run_id: str) -> Run:
    """A run that the caller may see."""
    check_run_id(run_id)
    run = await service.ask(service.records.get, run_id)
    caller.check_queue(run.spec.queue)
    return run


async def check_queue(service: Service, caller: Principal, run_id: str) -> None:
    """Refuse a run of a queue that is not the caller's."""
    check_run_id(run_id)
    if caller.queues:
        await visible(service, caller, run_id)


@router.post("", status_code=201, summary="Submit a run, or many")
async def submit(
    request: Request,
    caller: Annotated[Principal, allowed("submit", by_queue=True)],
    durable: Annotated[bool, Query(description="Answer only when it is on the store's disk.")] = False,
    idempotency_key: Annotated[
        str | None, Header(description="Sent again with the same body within a day, it is answered as the first time.")
    ] = None,
    run_id: Annotated[
        str | None, Query(alias="id", description="The id that one run is to have; sent again it changes nothing.")
    ] = None,
) -> Response:
    """Put one run into the world, or `{"runs": […]}`. All of them are checked before the first is submitted."""
    service, body = service_of(request), await request.body()
    value = submitting.read(body)
    if foreign.is_foreign(value):
        return await submitted(request, caller, value, idempotency_key)
    trace = request.scope["state"].get("traceparent") or tracing.valid(request.headers.get("traceparent"))
    what = submitting.asked(body, value)._replace(trace=trace)
    answer = await submitting.submit(service, caller, what, key=idempotency_key, durable=durable, run_id=run_id)
    if what.many:
        request.state.made = [f"/runs/{each['id']}" for each in answer.body["runs"] if each["created"]]
    headers = None if what.many else {"location": f"/runs/{answer.body['id']}"}
    return views.told(answer.body, answer.status, headers)


@router.get("", summary="List runs, newest first")
async def page(
    request: Request,
    caller: Annotated[Principal, allowed("read", by_queue=True)],
    state: Annotated[list[State] | None, APART, Query(description="Only those in these states.")] = None,
    queue: Annotated[str | None, Query(description="Only those of a queue.")] = None,
    plan: Annotated[str | None, Query(description="Only those of a plan.")] = None,
    session: Annotated[str | None, Query(description="Only those of a session.")] = None,
    outcome: Annotated[OutcomeClass | None, Query(description="Only those that ended with this class.")] = None,
    since_ms: Annotated[int | None, Query(ge=0, le=1 << 44, description="Only those made then or later.")] = None,
    until_ms: Annotated[int | None, Query(ge=0, le=1 << 44, description="Only those made before then.")] = None,
    made_by: Annotated[str, Query(max_length=64, description="Only those that the token of this id has made.")] = "",
    limit: Annotated[int, Query(ge=1, le=LIST_A_CALL, description="At most so many.")] = 100,
    cursor: Annotated[str | None, Query(max_length=64, description="`next` of the page before.")] = None,
    status: Annotated[foreign.Status | None, Query(description="The same in the words of other systems.")] = None,
) -> Response:
    """A page of runs. It may be short, or empty, and not be the last: that has no `next`.

    With no parameter but `status` all of them, in the words of other systems, whose clients know of no pages.
    """
    service = service_of(request)
    if queue is not None:
        caller.check_queue(queue)
    states = foreign.STATES[status] if status is not None else tuple(state or State)
    queues = () if queue else caller.queues
    which = Filter(states, queue, queues, plan, session, since_ms, until_ms, outcome, made_by=made_by)
    if {*request.query_params} <= {"status"}:
        runs, following = await service.ask(foreign.every_run, service.records, which, status)
        return views.told({"runs": runs, "next": following})
    found = await service.ask(service.records.page, which, limit=limit, cursor=cursor)
    shown = [views.summary_view(run) for run in found.runs]
    following = found.cursor
    if status is not None:
        shown, last = await service.ask(foreign.wholly, service.records, shown, status)
        following = last or following
    return views.told({"runs": shown, "next": following})


@router.get("/{run_id}", summary="A run, or its end")
async def get(
    request: Request,
    run_id: RunId,
    caller: Annotated[Principal, allowed("read", by_queue=True)],
    wait: Wait = 0,
) -> Response:
    """All that is known of a run. With `wait`, as soon as it has ended; with `If-None-Match` too, when it has changed.

    When the time is over it is answered as it is, or with 304.
    """
    service = service_of(request)
    check_run_id(run_id)
    if not wait:
        return views.tagged(request, views.run_view(await visible(service, caller, run_id)))
    conditional = "if-none-match" in request.headers
    with service.tides.of_run(run_id) as watch:
        last: list[Run] = [await visible(service, caller, run_id)]

        async def look() -> Run | None:
            last[0] = await visible(service, caller, run_id)
            if not conditional:
                return last[0] if last[0].state in TERMINAL else None
            tag = views.tag_of(views.content_of(views.run_view(last[0])))
            return None if views.knows(request, tag) else last[0]

        await service.until(watch, look, wait, await departing(request))
    return views.tagged(request, views.run_view(last[0]))
