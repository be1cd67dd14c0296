"""Queues: what waits where, and what an operator may do about it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import Response

from agentq.coordinator.errors import Invalid, NotFound
from agentq.coordinator.lifecycle import QUEUED
from agentq.coordinator.limits import NAME_LENGTH, QUEUES_A_PAGE
from agentq.coordinator.overview import Overview
from agentq.coordinator.server import bodies, views
from agentq.coordinator.server.access import Principal, allowed
from agentq.coordinator.server.parameters import KNOWN
from agentq.coordinator.server.service import service_of
from agentq.coordinator.shapes import queue_record

router = APIRouter(prefix="/queues", tags=["queues"], dependencies=[KNOWN])

Name = Annotated[str, Path(description="The name of a queue.", examples=["default"])]
OrAll = Annotated[str, Path(description="The name of a queue; `*` is all of them, those to come as well.")]
Reader = Annotated[Principal, allowed("read", by_queue=True)]
Admin = Annotated[Principal, allowed("admin", by_queue=True)]


@router.get("", summary="List queues")
async def ls(
    request: Request,
    caller: Reader,
    limit: Annotated[int, Query(ge=1, le=QUEUES_A_PAGE, description="At most so many.")] = QUEUES_A_PAGE,
    cursor: Annotated[str | None, Query(max_length=NAME_LENGTH, description="`next` of the page before.")] = None,
) -> Response:
    """Their runs by state, since when the oldest waits, how many come and end in a minute. A page, by name."""
    service = service_of(request)
    found = await service.ask(Overview(service.store).page, limit, cursor, caller.queues)
    return views.told({"queues": [queue_record(each) for each in found.queues], "next": found.cursor})


@router.get("/{name}", summary="A queue")
async def get(request: Request, name: Name, caller: Reader) -> Response:
    """Its runs by state, since when the oldest waits, how many come and end in a minute."""
    caller.check_queue(name)
    service = service_of(request)
    found = await service.ask(Overview(service.store).queue, name)
    if found is None:
        raise NotFound(f"There is no queue {name[:80]}; the first run that is submitted to it makes it.")
    return views.told(queue_record(found))


async def _say(request: Request, caller: Principal, name: str, verb: Callable[..., Any], *words: Any) -> Any:
    caller.check_queue(name)
    return await service_of(request).ask(verb, name, *words)


@router.post("/{name}/pause", summary="Claim nothing from a queue")
async def pause(request: Request, name: OrAll, caller: Admin, body: bodies.Because | None = None) -> Response:
    """Until it is resumed; what is held goes on."""
    await _say(request, caller, name, service_of(request).flow.pause, _why(caller, body))
    return views.told({"queue": name, "paused": True})


@router.post("/{name}/resume", summary="Let a queue go on")
async def resume(request: Request, name: OrAll, caller: Admin) -> Response:
    """That was paused or drained."""
    await _say(request, caller, name, service_of(request).flow.resume)
    return views.told({"queue": name, "paused": False})


@router.post("/{name}/drain", summary="Let no new runs into a queue")
async def drain(request: Request, name: Name, caller: Admin, body: bodies.Because | None = None) -> Response:
    """Until it is resumed; what is there goes on."""
    await _say(request, caller, name, service_of(request).flow.drain, _why(caller, body))
    return views.told({"queue": name, "drained": True})


@router.post("/{name}/purge", summary="Cancel what waits in a queue")
async def purge(request: Request, name: Name, caller: Admin, body: bodies.Purge | None = None) -> Response:
    """What is held goes on."""
    states = (body or bodies.Purge()).states
    if not set(states) <= set(QUEUED):
        raise Invalid(f"states: only runs that are {', '.join(QUEUED)} wait in a queue.")
    done = await _say(request, caller, name, service_of(request).flow.purge, "its queue was purged", states)
    return views.told({"queue": name, "cancelled": done})


@router.post("/{name}/move", summary="Move what waits in a queue to another")
async def move(request: Request, name: Name, caller: Admin, body: bodies.Move) -> Response:
    """What is held goes on."""
    caller.check_queue(body.to)
    done = await _say(request, caller, name, service_of(request).flow.move, body.to)
    return views.told({"queue": name, "moved": done})


@router.post("/{name}/weigh", summary="Give a key more turns, or fewer")
async def weigh(request: Request, name: Name, caller: Admin, body: bodies.Weigh) -> Response:
    """Among those that take turns in a queue; for the runs that come from now on."""
    await _say(request, caller, name, service_of(request).flow.weigh, body.fair_key, body.weight)
    return views.told({"queue": name, "fair_key": body.fair_key, "weight": body.weight})


def _why(caller: Principal, body: bodies.Because | None) -> str:
    return (body and body.why) or f"asked by {caller.name}"
