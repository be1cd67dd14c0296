"""Limits: how much may run at once, or in a time, under a key."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request
from starlette.responses import Response

from agentq.coordinator.errors import NotFound
from agentq.coordinator.flow import Limit
from agentq.coordinator.server import bodies, views
from agentq.coordinator.server.access import allowed
from agentq.coordinator.server.parameters import KNOWN
from agentq.coordinator.server.service import Service, service_of
from agentq.coordinator.shapes import limit_record

router = APIRouter(prefix="/limits", tags=["limits"], dependencies=[KNOWN])

Key = Annotated[str, Path(description="A key, such as repo:acme, queue:NAME or global.", examples=["repo:acme"])]
READ = allowed("read")
ADMIN = allowed("admin")


async def _existing(service: Service, key: str) -> Limit:
    (found,) = await service.ask(service.flow.limits, [key])
    if found.max is None and found.rate is None and found.shut_until_ms is None:
        raise NotFound(f"There is no limit {key}; /limits shows those that there are.")
    return found


@router.get("", summary="List limits", dependencies=[READ])
async def ls(request: Request) -> Response:
    """How much there is, how much is taken, how many wait."""
    service = service_of(request)
    found = await service.ask(service.flow.limits)
    return views.told({"limits": [limit_record(each) for each in found]})


@router.post("/{key:path}/shut", summary="Let nobody in under a key until a time", dependencies=[ADMIN])
async def shut(request: Request, key: Key, body: bodies.Shut) -> Response:
    """Who is in goes on."""
    service = service_of(request)
    await service.ask(service.flow.shut, key, body.until_ms, body.why)
    (found,) = await service.ask(service.flow.limits, [key])
    return views.told(limit_record(found))


@router.post("/{key:path}/open", summary="Open a gate before its time", dependencies=[ADMIN])
async def open_gate(request: Request, key: Key) -> Response:
    """Who waits for it is let in, as far as there is room."""
    service = service_of(request)
    if (await _existing(service, key)).shut_until_ms is None:
        raise NotFound(f"The gate of {key} is open.")
    await service.ask(service.flow.open, key)
    (found,) = await service.ask(service.flow.limits, [key])
    return views.told(limit_record(found))


@router.get("/{key:path}", summary="A limit", dependencies=[READ])
async def get(request: Request, key: Key) -> Response:
    """How much there is of it, how much is taken, how many wait."""
    return views.tagged(request, limit_record(await _existing(service_of(request), key)))


@router.put("/{key:path}", summary="Say how much there is of a key", dependencies=[ADMIN])
async def put(request: Request, key: Key, body: bodies.NewLimit) -> Response:
    """From now on. Who holds more than that keeps it."""
    service = service_of(request)
    await service.ask(service.flow.limit, key, most=body.max, rate=body.rate, when_full=body.when_full)
    (found,) = await service.ask(service.flow.limits, [key])
    return views.told(limit_record(found))


@router.delete("/{key:path}", status_code=204, summary="Remove a limit", dependencies=[ADMIN])
async def remove(request: Request, key: Key) -> Response:
    """Whoever waits for it goes on."""
    service = service_of(request)
    await service.ask(service.flow.unlimit, key)
    return Response(status_code=204)
