"""Queues: their runs, and the controls for operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import Response

from agentq.coordinator.bounds import NAME_LENGTH, QUEUES_PER_PAGE
from agentq.coordinator.errors import Invalid, NotFound
from agentq.coordinator.model.lifecycle import QUEUED_STATES
from agentq.coordinator.public_json.queues import queue_json
from agentq.server.auth.access_control import Principal, require_scope
from agentq.server.http import responses
from agentq.server.http.parameters import ONLY_KNOWN_PARAMETERS
from agentq.server.schema import requests
from agentq.server.service import get_service

router = APIRouter(prefix="/queues", tags=["queues"], dependencies=[ONLY_KNOWN_PARAMETERS])

QueueNamePath = Annotated[str, Path(description="The name of a queue.", examples=["default"])]
QueueOrAllPath = Annotated[str, Path(description="The name of a queue; `*` is all of them, those to come as well.")]
ReadPrincipal = Annotated[Principal, require_scope("read", by_queue=True)]
AdminPrincipal = Annotated[Principal, require_scope("admin", by_queue=True)]


@router.get("", summary="List queues")
async def list_queues(
    request: Request,
    caller: ReadPrincipal,
    limit: Annotated[int, Query(ge=1, le=QUEUES_PER_PAGE, description="The most entries.")] = QUEUES_PER_PAGE,
    cursor: Annotated[str | None, Query(max_length=NAME_LENGTH, description="`next` of the page before.")] = None,
) -> Response:
    """A page of queues by name: their runs by state, the age of the oldest, submitted and ended runs per minute."""
    service = get_service(request)
    found = await service.call_in_thread(service.queues.page, limit, cursor, caller.queues)
    return responses.json_response({"queues": [queue_json(each) for each in found.queues], "next": found.cursor})


@router.get("/{name}", summary="Get a queue")
async def get_queue(request: Request, name: QueueNamePath, caller: ReadPrincipal) -> Response:
    """Its runs by state, the age of the oldest, submitted and ended runs per minute."""
    caller.check_queue(name)
    service = get_service(request)
    found = await service.call_in_thread(service.queues.get, name)
    if found is None:
        raise NotFound(f"There is no queue {name[:80]}; the first run submitted to it creates it.")
    return responses.json_response(queue_json(found))


async def _control_queue(
    request: Request, caller: Principal, name: str, verb: Callable[..., Any], *arguments: Any
) -> Any:
    caller.check_queue(name)
    return await get_service(request).call_in_thread(verb, name, *arguments)


@router.post("/{name}/pause", summary="Pause a queue")
async def pause_queue(
    request: Request, name: QueueOrAllPath, caller: AdminPrincipal, body: requests.ReasonRequest | None = None
) -> Response:
    """Until it is resumed; claimed runs continue."""
    await _control_queue(request, caller, name, get_service(request).queues.pause, _choose_reason(caller, body))
    return responses.json_response({"queue": name, "paused": True})


@router.post("/{name}/resume", summary="Resume a queue")
async def resume_queue(request: Request, name: QueueOrAllPath, caller: AdminPrincipal) -> Response:
    """After it was paused or drained."""
    await _control_queue(request, caller, name, get_service(request).queues.resume)
    return responses.json_response({"queue": name, "paused": False})


@router.post("/{name}/drain", summary="Drain a queue")
async def drain_queue(
    request: Request, name: QueueNamePath, caller: AdminPrincipal, body: requests.ReasonRequest | None = None
) -> Response:
    """Until it is resumed; runs in the queue continue."""
    await _control_queue(request, caller, name, get_service(request).queues.drain, _choose_reason(caller, body))
    return responses.json_response({"queue": name, "drained": True})


@router.post("/{name}/purge", summary="Cancel the waiting runs of a queue")
async def purge_queue(
    request: Request, name: QueueNamePath, caller: AdminPrincipal, body: requests.PurgeQueueRequest | None = None
) -> Response:
    """Claimed runs continue."""
    states = (body or requests.PurgeQueueRequest()).states
    if not set(states) <= set(QUEUED_STATES):
        raise Invalid(f"states: only runs that are {', '.join(QUEUED_STATES)} wait in a queue.")
    done = await _control_queue(request, caller, name, get_service(request).queues.purge, states)
    return responses.json_response({"queue": name, "cancelled": done})


@router.post("/{name}/move", summary="Move the waiting runs of a queue to another")
async def move_runs(
    request: Request, name: QueueNamePath, caller: AdminPrincipal, body: requests.MoveRunsRequest
) -> Response:
    """Claimed runs stay."""
    caller.check_queue(body.to)
    done = await _control_queue(request, caller, name, get_service(request).queues.move, body.to)
    return responses.json_response({"queue": name, "moved": done})


@router.post("/{name}/weigh", summary="Set the share of a key in a queue")
async def set_fair_weight(
    request: Request, name: QueueNamePath, caller: AdminPrincipal, body: requests.FairWeightRequest
) -> Response:
    """Among the keys that share a queue; for runs submitted from now on."""
    await _control_queue(request, caller, name, get_service(request).queues.weigh, body.fair_key, body.weight)
    return responses.json_response({"queue": name, "fair_key": body.fair_key, "weight": body.weight})


def _choose_reason(caller: Principal, body: requests.ReasonRequest | None) -> str:
    return (body and body.why) or f"asked by {caller.name}"
