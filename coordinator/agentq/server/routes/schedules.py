"""Schedules: runs that are submitted repeatedly, or at a time."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Query, Request
from pydantic_core import to_json
from starlette.responses import Response

from agentq.coordinator.bounds import HISTORY_KEPT
from agentq.coordinator.model.ids import new_run_id
from agentq.coordinator.public_json.schedules import schedule_history_json, upcoming_json
from agentq.coordinator.schedules.verbs import ScheduleRecord, make_schedule_rule
from agentq.server import submission
from agentq.server.auth.access_control import Principal, require_scope
from agentq.server.http import responses
from agentq.server.http.parameters import ONLY_KNOWN_PARAMETERS, IdempotencyKeyHeader, derive_operation
from agentq.server.schema import requests
from agentq.server.service import get_service

router = APIRouter(prefix="/schedules", tags=["schedules"], dependencies=[ONLY_KNOWN_PARAMETERS])

ScheduleNamePath = Annotated[str, Path(description="The name of a schedule.")]
READ = require_scope("read")
SUBMIT = require_scope("submit")
SubmitPrincipal = Annotated[Principal, SUBMIT]
RULE_FIELDS = ("cron", "tz", "every_ms", "start_ms", "at_ms", "until_ms", "jitter_ms", "missed", "catch_up_ms")


@router.get("", summary="List schedules, by name", dependencies=[READ])
async def list_schedules(request: Request) -> Response:
    """All schedules, by name."""
    service = get_service(request)
    found: list[ScheduleRecord] = await service.call_in_thread(lambda: list(service.schedules.all()))
    return responses.json_response({"schedules": [responses.build_schedule_view(each) for each in found]})


@router.get("/{name}", summary="Get a schedule", dependencies=[READ])
async def get_schedule(request: Request, name: ScheduleNamePath) -> Response:
    """Its run, and its next ticks."""
    service = get_service(request)

    def read() -> dict[str, Any]:
        found = service.schedules.get(name)
        return {**responses.build_schedule_view(found), "next": upcoming_json(found, service.store.time_ms())}

    return responses.etag_response(request, await service.call_in_thread(read))


@router.put("/{name}", summary="Create or replace a schedule")
async def put_schedule(
    request: Request,
    name: ScheduleNamePath,
    body: requests.PutScheduleRequest,
    caller: SubmitPrincipal,
    key: IdempotencyKeyHeader = None,
    if_none_match: Annotated[str | None, Header(description="With `*`, one that is there is not replaced.")] = None,
) -> Response:
    """A schedule that is replaced keeps its history and its pause."""
    service, run = get_service(request), to_json(body.run)
    (spec,) = submission.parse_submit_body(run, body.run, one=True).specs
    rule = make_schedule_rule(**{field: getattr(body, field) for field in RULE_FIELDS})
    replace = (if_none_match or "").strip() != "*"
    operation = derive_operation(caller.token, key, f"{name} {replace} {body.model_dump_json()}".encode())
    made = await service.call_in_thread(
        service.schedules.add, name, rule, spec, overlap=body.overlap, replace=replace, operation=operation
    )
    return responses.json_response(responses.build_schedule_view(made))


@router.delete("/{name}", status_code=204, summary="Remove a schedule", dependencies=[SUBMIT])
async def remove_schedule(request: Request, name: ScheduleNamePath) -> Response:
    """Its history is deleted as well; runs that it has submitted continue."""
    service = get_service(request)
    await service.call_in_thread(service.schedules.remove, name)
    return Response(status_code=204)


@router.post("/{name}/pause", summary="Pause a schedule", dependencies=[SUBMIT])
async def pause_schedule(
    request: Request, name: ScheduleNamePath, body: requests.ReasonRequest | None = None
) -> Response:
    """Until it is resumed; runs that it has submitted continue."""
    service = get_service(request)
    why = (body or requests.ReasonRequest()).why
    return responses.json_response(
        responses.build_schedule_view(await service.call_in_thread(service.schedules.pause, name, why))
    )


@router.post("/{name}/resume", summary="Resume a schedule", dependencies=[SUBMIT])
async def resume_schedule(request: Request, name: ScheduleNamePath) -> Response:
    """Missed ticks run only if the schedule catches up."""
    service = get_service(request)
    return responses.json_response(
        responses.build_schedule_view(await service.call_in_thread(service.schedules.resume, name))
    )


@router.post("/{name}/run", status_code=201, summary="Run a schedule now")
async def trigger_schedule(
    request: Request, name: ScheduleNamePath, caller: SubmitPrincipal, key: IdempotencyKeyHeader = None
) -> Response:
    """Regardless of its next tick, its policy and its pause."""
    service = get_service(request)
    await service.call_in_thread(service.schedules.get, name)

    async def trigger(first: dict[str, Any]) -> submission.SubmitResponse:
        receipt = await service.call_in_thread(service.schedules.run, name, run_id=first["id"])
        told = {"id": receipt.id, "created": receipt.created}
        return submission.SubmitResponse(201 if receipt.created else 200, told)

    made = {"id": new_run_id(service.schedules.partition(name), service.store.time_ms())}
    if key is None:
        answer = await trigger(made)
    else:
        answer = await submission.execute_once(service, caller, key, f"trigger {name}", made, trigger)
    return responses.json_response(answer.body, answer.status, {"location": f"/runs/{answer.body['id']}"})


@router.get("/{name}/history", summary="List the results of its ticks, newest first", dependencies=[READ])
async def list_history(
    request: Request,
    name: ScheduleNamePath,
    limit: Annotated[int, Query(ge=1, le=HISTORY_KEPT, description="The most entries.")] = 20,
) -> Response:
    """Submitted runs, and ticks that were skipped or missed."""
    service = get_service(request)
    await service.call_in_thread(service.schedules.get, name)
    history = await service.call_in_thread(service.schedules.history, name, limit)
    return responses.json_response({"history": [schedule_history_json(each) for each in history]})
