"""Plans: tasks that depend on each other, each of them a run.

What comes in here is tasks with their runs, each said in full. A plan file, with its defaults, matrices and includes,
is read where it lies: `agentq plan submit`.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Annotated

from fastapi import APIRouter, Header, Path, Query, Request
from pydantic_core import to_json
from starlette.responses import Response

from agentq.coordinator.errors import Invalid
from agentq.coordinator.identity import check_run_id
from agentq.coordinator.lifecycle import State
from agentq.coordinator.limits import LIST_A_CALL, NAME_LENGTH
from agentq.coordinator.plans import Plan, Plans, Task
from agentq.coordinator.server import bodies, submitting, views
from agentq.coordinator.server.access import Principal, allowed
from agentq.coordinator.server.departing import departing
from agentq.coordinator.server.parameters import APART, KNOWN
from agentq.coordinator.server.routers.runs import Wait
from agentq.coordinator.server.service import service_of
from agentq.coordinator.shapes import plan_record, task_record

router = APIRouter(prefix="/plans", tags=["plans"], dependencies=[KNOWN])

Id = Annotated[str, Path(description="The id of a plan.", examples=["release-3f09c2ab4"])]
Submitter = Annotated[Principal, allowed("submit")]
READ = allowed("read")
SUBMIT = allowed("submit")
SUFFIX = 9
"""Digits of what makes a plan's id its own."""


def plans_of(request: Request) -> Plans:
    """The plans that a request is about."""
    return Plans(service_of(request).queue)


@router.post("", status_code=201, summary="Submit a plan")
async def create(
    request: Request,
    caller: Submitter,
    body: bodies.NewPlan,
    idempotency_key: Annotated[
        str | None, Header(max_length=255, description="Sent again with the same body, it completes the same plan.")
    ] = None,
) -> Response:
    """All tasks are checked, and their order, before the first is submitted."""
    tasks = [_task(at, each) for at, each in enumerate(body.tasks)]
    plan = None
    if idempotency_key is not None:
        own = sha256(f"{caller.token or ''} {idempotency_key}".encode()).hexdigest()
        plan = f"{body.name[: NAME_LENGTH - SUFFIX - 1]}-{own[:SUFFIX]}"
    plans, service = plans_of(request), service_of(request)
    made = await service.ask(
        plans.create, body.name, tasks, plan=plan, on_failed=body.on_failed, source=to_json(body).decode()
    )
    found = await service.ask(plans.get, made)
    return views.told(plan_record(found), 201, {"location": f"/plans/{made}"})


@router.get("", summary="List plans, newest first", dependencies=[READ])
async def page(
    request: Request,
    limit: Annotated[int, Query(ge=1, le=LIST_A_CALL, description="At most so many.")] = 100,
    cursor: Annotated[str | None, Query(max_length=256, description="`next` of the page before.")] = None,
) -> Response:
    """A page of plans; the last has no `next`."""
    if cursor is not None and not (cursor.partition(" ")[0].isdecimal() and " " in cursor):
        raise Invalid("cursor: this is none that a list of plans has given.")
    found, following = await service_of(request).ask(plans_of(request).ls, limit=limit, cursor=cursor)
    return views.told({"plans": [plan_record(each) for each in found], "next": following})


@router.get("/{plan}", summary="A plan, or its end", dependencies=[READ])
async def get(request: Request, plan: Id, wait: Wait = 0) -> Response:
    """How many of its tasks are in which state. With `wait`, as soon as it has ended."""
    service, plans = service_of(request), plans_of(request)
    found = await service.ask(plans.get, plan)
    if not wait or found.ended is not None:
        return views.tagged(request, plan_record(found))
    with service.tides.of_plan(plan) as watch:

        async def look() -> Plan | None:
            nonlocal found
            found = await service.ask(plans.get, plan)
            return found if found.ended is not None else None

        await service.until(watch, look, wait, await departing(request))
    return views.tagged(request, plan_record(found))


@router.get("/{plan}/tasks", summary="The tasks of a plan", dependencies=[READ])
async def tasks(
    request: Request,
    plan: Id,
    state: Annotated[list[State] | None, APART, Query(description="Only those in these states.")] = None,
    limit: Annotated[int, Query(ge=1, le=LIST_A_CALL, description="At most so many.")] = 100,
    cursor: Annotated[str | None, Query(max_length=64, description="`next` of the page before.")] = None,
) -> Response:
    """A page of them, each with its run; the last has no `next`."""
    plans, service = plans_of(request), service_of(request)
    if cursor is not None:
        check_run_id(cursor)
    found, following = await service.ask(plans.tasks, plan, *(state or ()), limit=limit, cursor=cursor)
    if not found:
        await service.ask(plans.get, plan)  # there may be no such plan
    return views.told({"tasks": [task_record(each) for each in found], "next": following})


@router.post("/{plan}/tasks", status_code=201, summary="Add tasks to a plan", dependencies=[SUBMIT])
async def add(request: Request, plan: Id, body: bodies.MoreTasks) -> Response:
    """They may need any task of it. A plan that had ended goes on."""
    tasks = [_task(at, each) for at, each in enumerate(body.tasks)]
    runs = await service_of(request).ask(plans_of(request).add, plan, tasks)
    return views.told({"runs": runs}, 201)


@router.post("/{plan}/cancel", summary="Stop a plan", dependencies=[SUBMIT])
async def cancel(request: Request, plan: Id, body: bodies.Because | None = None) -> Response:
    """Nothing more of it begins, and what runs is stopped."""
    why = (body and body.why) or "cancelled on request"
    return views.told(plan_record(await service_of(request).ask(plans_of(request).cancel, plan, why)))


@router.post("/{plan}/retry", summary="Let tasks of a plan begin again", dependencies=[SUBMIT])
async def retry(
    request: Request,
    plan: Id,
    body: bodies.RetryPlan | None = None,
    operation: Annotated[str | None, Header(alias="idempotency-key", max_length=255)] = None,
) -> Response:
    """Those that failed, all that did not complete, or one; and with them what was skipped for them."""
    said = body or bodies.RetryPlan()
    plans = plans_of(request)
    found = await service_of(request).ask(plans.retry, plan, said.which, task=said.task, operation=operation or "")
    return views.told(plan_record(found))


@router.delete("/{plan}", status_code=204, summary="Forget an ended plan", dependencies=[allowed("admin")])
async def forget(request: Request, plan: Id) -> Response:
    """With its tasks."""
    await service_of(request).ask(plans_of(request).forget, plan)
    return Response(status_code=204)


def _task(at: int, given: bodies.PlanTask) -> Task:
    spec = submitting.spec_of(to_json(given.run), f"tasks.{at}.run.")
    return Task(given.id, spec, given.needs, given.inputs)
