"""Limits: how many runs with a key may execute at once, or in a time."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request
from starlette.responses import Response

from agentq.coordinator.errors import NotFound
from agentq.coordinator.public_json.queues import limit_json
from agentq.coordinator.queues.limits import LimitRecord
from agentq.server.auth.access_control import require_scope
from agentq.server.http import responses
from agentq.server.http.parameters import ONLY_KNOWN_PARAMETERS
from agentq.server.schema import requests
from agentq.server.service import ServerService, get_service

router = APIRouter(prefix="/limits", tags=["limits"], dependencies=[ONLY_KNOWN_PARAMETERS])

LimitKeyPath = Annotated[
    str, Path(description="A key, such as repo:acme, queue:NAME or global.", examples=["repo:acme"])
]
READ = require_scope("read")
ADMIN = require_scope("admin")


async def _find_limit(service: ServerService, key: str) -> LimitRecord:
    return await service.call_in_thread(service.limits.get, key)


@router.get("", summary="List limits", dependencies=[READ])
async def list_limits(request: Request) -> Response:
    """The size of each limit, how much of it is held, and how many runs wait for it."""
    service = get_service(request)
    found = await service.call_in_thread(service.limits.all)
    return responses.json_response({"limits": [limit_json(each) for each in found]})


@router.post("/{key:path}/shut", summary="Shut a limit until a time", dependencies=[ADMIN])
async def shut_limit(request: Request, key: LimitKeyPath, body: requests.ShutLimitRequest) -> Response:
    """Runs that hold it continue."""
    service = get_service(request)
    await service.call_in_thread(service.limits.shut, key, body.until_ms, body.why)
    (found,) = await service.call_in_thread(service.limits.named, [key])
    return responses.json_response(limit_json(found))


@router.post("/{key:path}/open", summary="Open a shut limit early", dependencies=[ADMIN])
async def open_limit(request: Request, key: LimitKeyPath) -> Response:
    """Runs that wait for it are admitted, as far as there is room."""
    service = get_service(request)
    if (await _find_limit(service, key)).shut_until_ms is None:
        raise NotFound(f"The limit {key} is not shut.")
    await service.call_in_thread(service.limits.open, key)
    (found,) = await service.call_in_thread(service.limits.named, [key])
    return responses.json_response(limit_json(found))


@router.get("/{key:path}", summary="Get a limit", dependencies=[READ])
async def get_limit(request: Request, key: LimitKeyPath) -> Response:
    """The size of the limit, how much of it is held and by which runs, and how many wait for it."""
    service = get_service(request)
    found = limit_json(await _find_limit(service, key))
    return responses.etag_response(
        request, found | {"holders": await service.call_in_thread(service.limits.holders, key)}
    )


@router.put("/{key:path}", summary="Set a limit", dependencies=[ADMIN])
async def put_limit(request: Request, key: LimitKeyPath, body: requests.PutLimitRequest) -> Response:
    """From now on. Runs that hold more keep it."""
    service = get_service(request)
    await service.call_in_thread(service.limits.set, key, most=body.max, rate=body.rate, when_full=body.when_full)
    (found,) = await service.call_in_thread(service.limits.named, [key])
    return responses.json_response(limit_json(found))


@router.delete("/{key:path}", status_code=204, summary="Remove a limit", dependencies=[ADMIN])
async def remove_limit(request: Request, key: LimitKeyPath) -> Response:
    """Runs that wait for it continue."""
    service = get_service(request)
    await service.call_in_thread(service.limits.remove, key)
    return Response(status_code=204)
