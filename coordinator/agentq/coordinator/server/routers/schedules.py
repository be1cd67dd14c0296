"""Schedules: what is run again and again, or at a time."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Query, Request
from pydantic_core import to_json
from starlette.responses import Response

from agentq.coordinator.limits import HISTORY_KEPT
from agentq.coordinator.moments import iso
from agentq.coordinator.schedules import Schedule, rule_of
from agentq.coordinator.server import bodies, submitting, views
from agentq.coordinator.server.access import allowed
from agentq.coordinator.server.parameters import KNOWN
from agentq.coordinator.server.service import service_of
from agentq.coordinator.shapes import happening_record

router = APIRouter(prefix="/schedules", tags=["schedules"], dependencies=[KNOWN])

Name = Annotated[str, Path(description="The name of a schedule.")]
READ = allowed("read")
SUBMIT = allowed("submit")
COMING = 5
RULE = ("cron", "tz", "every_ms", "start_ms", "at_ms", "until_ms", "jitter_ms", "missed", "catch_up_ms")


@router.get("", summary="List schedules, by name", dependencies=[READ])
async def ls(request: Request) -> Response:
    """All of them."""
    service = service_of(request)
    found: list[Schedule] = await service.ask(lambda: list(service.schedules.all()))
    return views.told({"schedules": [views.schedule_view(each) for each in found]})


@router.get("/{name}", summary="A schedule", dependencies=[READ])
async def get(request: Request, name: Name) -> Response:
    """What it runs, and its next ticks."""
    service = service_of(request)

    def look() -> dict[str, Any]:
        found = service.schedules.get(name)
        coming = found.coming(COMING, service.store.time_ms())
        return {**views.schedule_view(found), "next": [iso(tick) for tick in coming]}

    return views.tagged(request, await service.ask(look))


@router.put("/{name}", summary="Make a schedule, or put this one in its place", dependencies=[SUBMIT])
async def put(
    request: Request,
    name: Name,
    body: bodies.NewSchedule,
    if_none_match: Annotated[str | None, Header(description="With `*`, one that is there is not replaced.")] = None,
) -> Response:
    """What is replaced keeps its history and its pause."""
    service, run = service_of(request), to_json(body.run)
    (spec,) = submitting.asked(run, body.run, one=True).specs
    rule = rule_of(**{field: getattr(body, field) for field in RULE})
    replace = (if_none_match or "").strip() != "*"
    made = await service.ask(service.schedules.add, name, rule, spec, overlap=body.overlap, replace=replace)
    return views.told(views.schedule_view(made))


@router.delete("/{name}", status_code=204, summary="Remove a schedule", dependencies=[SUBMIT])
async def remove(request: Request, name: Name) -> Response:
    """With its history; the runs that it made go on."""
    service = service_of(request)
    await service.ask(service.schedules.remove, name)
    return Response(status_code=204)


@router.post("/{name}/pause", summary="Let no tick come", dependencies=[SUBMIT])
async def pause(request: Request, name: Name, body: bodies.Because | None = None) -> Response:
    """Until it is resumed; the runs that it made go on."""
    service = service_of(request)
    why = (body or bodies.Because()).why
    return views.told(views.schedule_view(await service.ask(service.schedules.pause, name, why)))


@router.post("/{name}/resume", summary="Let a schedule go on", dependencies=[SUBMIT])
async def resume(request: Request, name: Name) -> Response:
    """What it missed is run only where it catches up."""
    service = service_of(request)
    return views.told(views.schedule_view(await service.ask(service.schedules.resume, name)))


@router.post("/{name}/run", status_code=201, summary="Make a run of it now", dependencies=[SUBMIT])
async def run(request: Request, name: Name) -> Response:
    """Whatever its next tick, its policy and its pause say."""
    service = service_of(request)
    await service.ask(service.schedules.get, name)
    receipt = await service.ask(service.schedules.run, name)
    told = {"id": receipt.id, "created": receipt.created}
    return views.told(told, 201 if receipt.created else 200, {"location": f"/runs/{receipt.id}"})


@router.get("/{name}/history", summary="What became of its ticks, newest first", dependencies=[READ])
async def history(
    request: Request,
    name: Name,
    limit: Annotated[int, Query(ge=1, le=HISTORY_KEPT, description="At most so many.")] = 20,
) -> Response:
    """Runs that were made, and ticks that were skipped or missed."""
    service = service_of(request)
    await service.ask(service.schedules.get, name)
    told = await service.ask(service.schedules.history, name, limit)
    return views.told({"history": [happening_record(each) for each in told]})
