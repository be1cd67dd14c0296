"""Plans: tasks that depend on each other, each of them a run.

A plan is submitted here as tasks with complete runs. A plan file with defaults, matrices and includes is compiled where
it is: `agentq plan submit`.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Annotated

from fastapi import APIRouter, Header, Path, Query, Request
from pydantic_core import to_json
from starlette.responses import Response

from agentq.coordinator.bounds import LIST_PER_CALL, NAME_LENGTH
from agentq.coordinator.errors import Invalid
from agentq.coordinator.model.ids import check_run_id
from agentq.coordinator.model.lifecycle import State
from agentq.coordinator.plans.source import PlanHeader
from agentq.coordinator.plans.verbs import PlanRecord, Plans, TaskSubmission, make_plan_id
from agentq.coordinator.public_json.plans import plan_json, task_json
from agentq.coordinator.security.secret_fields import redact_value
from agentq.server import submission
from agentq.server.auth.access_control import Principal, require_scope
from agentq.server.http import responses
from agentq.server.http.disconnect import watch_disconnect
from agentq.server.http.parameters import COMMA_SEPARATED, ONLY_KNOWN_PARAMETERS
from agentq.server.routes.runs import WaitQuery
from agentq.server.schema import requests
from agentq.server.service import get_service

router = APIRouter(prefix="/plans", tags=["plans"], dependencies=[ONLY_KNOWN_PARAMETERS])

PlanIdPath = Annotated[str, Path(description="The id of a plan.", examples=["release-3f09c2ab4"])]
SubmitPrincipal = Annotated[Principal, require_scope("submit")]
READ = require_scope("read")
SUBMIT = require_scope("submit")
ID_SUFFIX_LENGTH = 9
"""Digits of the unique part of a plan's id."""


def open_plans(request: Request) -> Plans:
    """The verbs of plans."""
    return Plans(get_service(request).run_verbs)


@router.post("", status_code=201, summary="Submit a plan")
async def create_plan(
    request: Request,
    caller: SubmitPrincipal,
    body: requests.CreatePlanRequest,
    idempotency_key: Annotated[
        str | None, Header(max_length=255, description="Sent again with the same body, it completes the same plan.")
    ] = None,
    durable: Annotated[bool, Query(description="Answer only when it is on the server's disk.")] = False,
) -> Response:
    """All tasks are checked, and their order, before the first is submitted."""
    derived = None if idempotency_key is None else _derive_id(caller, body.name, idempotency_key)
    plan = body.id or derived or make_plan_id(body.name)

    def submit() -> PlanRecord:
        tasks = [_build_task(at, each) for at, each in enumerate(body.tasks)]
        header = PlanHeader.model_validate(body.model_dump(exclude={"id", "tasks"}))
        return open_plans(request).submit(plan, header, tasks, durable=durable)

    found = await get_service(request).call_in_thread(submit)
    return responses.json_response(plan_json(found), 201, {"location": f"/plans/{plan}"})


def _derive_id(caller: Principal, name: str, key: str) -> str:
    own = sha256(f"{caller.token or ''} {key}".encode()).hexdigest()
    return f"{name[: NAME_LENGTH - ID_SUFFIX_LENGTH - 1]}-{own[:ID_SUFFIX_LENGTH]}"


@router.get("", summary="List plans, newest first", dependencies=[READ])
async def list_plans(
    request: Request,
    limit: Annotated[int, Query(ge=1, le=LIST_PER_CALL, description="The most entries.")] = 100,
    cursor: Annotated[str | None, Query(max_length=256, description="`next` of the page before.")] = None,
) -> Response:
    """A page of plans; the last has no `next`."""
    if cursor is not None and not (cursor.partition(" ")[0].isdecimal() and " " in cursor):
        raise Invalid("cursor: this is none that a list of plans has given.")
    found, following = await get_service(request).call_in_thread(open_plans(request).ls, limit=limit, cursor=cursor)
    return responses.json_response({"plans": [plan_json(each) for each in found], "next": following})


@router.get("/{plan}", summary="Get a plan, or wait for its end", dependencies=[READ])
async def get_plan(request: Request, plan: PlanIdPath, wait: WaitQuery = 0) -> Response:
    """How many of its tasks are in which state. With `wait`, as soon as it has ended."""
    service, plans = get_service(request), open_plans(request)
    found = await service.call_in_thread(plans.get, plan)
    if not wait or found.ended is not None:
        return responses.etag_response(request, plan_json(found))
    with service.event_hub.watch_plan(plan) as watch:

        async def read() -> PlanRecord | None:
            nonlocal found
            found = await service.call_in_thread(plans.get, plan)
            return found if found.ended is not None else None

        await service.wait_until(watch, read, wait, await watch_disconnect(request))
    return responses.etag_response(request, plan_json(found))


@router.get("/{plan}/header", summary="Get the header of a plan", dependencies=[READ])
async def get_header(request: Request, plan: PlanIdPath) -> Response:
    """Its file, its repository, where its work goes, and how it was submitted; what looks like a secret is left out."""
    header = await get_service(request).call_in_thread(open_plans(request).header, plan)
    return responses.etag_response(request, redact_value(header.model_dump(mode="json")))


@router.post("/{plan}/complete", summary="Complete an interrupted submit of a plan", dependencies=[SUBMIT])
async def complete_plan(request: Request, plan: PlanIdPath) -> Response:
    """A plan whose submit was cut is `open`; from what is kept with it, its missing tasks are submitted."""
    found = await get_service(request).call_in_thread(open_plans(request).complete, plan)
    return responses.json_response(plan_json(found))


@router.delete("/{plan}/limit", status_code=204, summary="Remove the limit of an ended plan", dependencies=[SUBMIT])
async def remove_limit(request: Request, plan: PlanIdPath) -> Response:
    """How many of its tasks may run at once; it has it again when it goes on."""
    await get_service(request).call_in_thread(open_plans(request).remove_limit, plan)
    return Response(status_code=204)


@router.get("/{plan}/tasks", summary="List the tasks of a plan", dependencies=[READ])
async def list_tasks(
    request: Request,
    plan: PlanIdPath,
    state: Annotated[list[State] | None, COMMA_SEPARATED, Query(description="Only those in these states.")] = None,
    limit: Annotated[int, Query(ge=1, le=LIST_PER_CALL, description="The most entries.")] = 100,
    cursor: Annotated[str | None, Query(max_length=64, description="`next` of the page before.")] = None,
) -> Response:
    """A page of them, each with its run; the last has no `next`."""
    plans, service = open_plans(request), get_service(request)
    if cursor is not None:
        check_run_id(cursor)
    found, following = await service.call_in_thread(plans.tasks, plan, *(state or ()), limit=limit, cursor=cursor)
    if not found:
        await service.call_in_thread(plans.get, plan)  # there may be no such plan
    return responses.json_response({"tasks": [task_json(each) for each in found], "next": following})


@router.post("/{plan}/tasks", status_code=201, summary="Add tasks to a plan", dependencies=[SUBMIT])
async def add_tasks(request: Request, plan: PlanIdPath, body: requests.AddTasksRequest) -> Response:
    """They may need any task of the plan. A plan that had ended continues."""

    def add() -> dict[str, str]:
        plans = open_plans(request)
        tasks = [_build_task(at, each) for at, each in enumerate(body.tasks)]
        if any(task.spec.workspace is not None for task in tasks):
            header = plans.header(plan)
            tasks = [_restore_workspace(task, header) for task in tasks]
        return plans.add(plan, tasks)

    runs = await get_service(request).call_in_thread(add)
    return responses.json_response({"runs": runs}, 201)


@router.post("/{plan}/cancel", summary="Cancel a plan", dependencies=[SUBMIT])
async def cancel_plan(request: Request, plan: PlanIdPath, body: requests.ReasonRequest | None = None) -> Response:
    """No further task begins, and running tasks are stopped."""
    why = (body and body.why) or "cancelled on request"
    return responses.json_response(
        plan_json(await get_service(request).call_in_thread(open_plans(request).cancel, plan, why))
    )


@router.post("/{plan}/retry", summary="Retry tasks of a plan", dependencies=[SUBMIT])
async def retry_plan(
    request: Request,
    plan: PlanIdPath,
    body: requests.RetryPlanRequest | None = None,
    operation: Annotated[str | None, Header(alias="idempotency-key", max_length=255)] = None,
) -> Response:
    """The tasks that failed, all that did not complete, or one; with the tasks that were skipped because of them."""
    options = body or requests.RetryPlanRequest()
    plans = open_plans(request)
    found = await get_service(request).call_in_thread(
        plans.retry, plan, options.which, task=options.task, operation=operation or ""
    )
    return responses.json_response(plan_json(found))


@router.delete("/{plan}", status_code=204, summary="Delete an ended plan", dependencies=[require_scope("admin")])
async def forget_plan(request: Request, plan: PlanIdPath) -> Response:
    """Its tasks are deleted as well."""
    await get_service(request).call_in_thread(open_plans(request).forget, plan)
    return Response(status_code=204)


def _build_task(at: int, given: requests.PlanTaskRequest) -> TaskSubmission:
    spec = submission.parse_spec(to_json(given.run), f"tasks.{at}.run.")
    return TaskSubmission(given.id, spec, given.needs, given.inputs)


def _restore_workspace(task: TaskSubmission, header: PlanHeader) -> TaskSubmission:
    """A workspace as the header shows it is the plan's own, with what is secret of it."""
    given, own = task.spec.workspace, header.workspace
    if given is None or own is None or given.model_dump(mode="json") != redact_value(own.model_dump(mode="json")):
        return task
    return task._replace(spec=task.spec.model_copy(update={"workspace": own}))
