"""Workers: their records, what they hold and offer, and draining them."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import Response

from agentq.coordinator.errors import NotFound
from agentq.coordinator.model.agent_options import AGENT_LABEL, AGENT_READY, ANY_AGENT_LABEL
from agentq.coordinator.public_json.workers import worker_json
from agentq.server.auth.access_control import Principal, require_scope
from agentq.server.http import responses
from agentq.server.http.parameters import ONLY_KNOWN_PARAMETERS
from agentq.server.schema import requests
from agentq.server.service import ServerService, get_service

router = APIRouter(tags=["workers"], dependencies=[ONLY_KNOWN_PARAMETERS])

WorkerIdPath = Annotated[str, Path(description="The id of a worker.")]
READ = require_scope("read")
AdminPrincipal = Annotated[Principal, require_scope("admin")]


@router.get("/workers", summary="List registered workers", dependencies=[READ])
async def list_workers(
    request: Request,
    all_: Annotated[bool, Query(alias="all", description="Also those that left or were lost within the hour.")] = False,
) -> Response:
    """The labels and slots of each, its runs, and its last heartbeat."""
    service = get_service(request)
    found = await service.call_in_thread(service.workers.all, departed=all_)
    return responses.json_response({"workers": [worker_json(each) for each in found]})


@router.get("/workers/{worker}", summary="Get a worker", dependencies=[READ])
async def get_worker(request: Request, worker: WorkerIdPath) -> Response:
    """Its labels and slots, its runs, and its last heartbeat; for an hour after its end, why it ended."""
    service = get_service(request)
    for each in await service.call_in_thread(service.workers.all, departed=True):
        if each.id == worker:
            return responses.json_response(worker_json(each))
    raise NotFound(f"There is no worker {worker[:80]!r}; /workers lists them.")


@router.post("/workers/{worker}/drain", status_code=202, summary="Drain a worker")
async def drain_worker(
    request: Request, worker: WorkerIdPath, caller: AdminPrincipal, body: requests.ReasonRequest | None = None
) -> Response:
    """It claims nothing more, finishes or hands back its runs, and ends."""
    return await _order_drain(request, worker, caller, body, hurry=False)


@router.post("/workers/{worker}/stop", status_code=202, summary="Stop a worker")
async def stop_worker(
    request: Request, worker: WorkerIdPath, caller: AdminPrincipal, body: requests.ReasonRequest | None = None
) -> Response:
    """Its runs are stopped and handed back, to run elsewhere without using up an attempt."""
    return await _order_drain(request, worker, caller, body, hurry=True)


async def _order_drain(
    request: Request, worker: str, caller: Principal, body: requests.ReasonRequest | None, *, hurry: bool
) -> Response:
    service = get_service(request)
    why = (body and body.why) or f"asked by {caller.name}"
    await service.call_in_thread(service.workers.drain, worker, why, hurry=hurry)
    return responses.json_response({"id": worker, "state": "draining"}, 202)


async def list_agent_offers(service: ServerService) -> dict[str, dict[str, Any]]:
    """The agents that workers offer: by which workers, and whether these can take runs now or are at a usage limit."""
    found: dict[str, dict[str, Any]] = {}
    for worker in await service.call_in_thread(service.workers.all):
        if worker.state == "silent":
            continue
        for label, state in sorted(worker.labels.items()):
            if label.startswith(AGENT_LABEL) and label != ANY_AGENT_LABEL:
                name = label.removeprefix(AGENT_LABEL)
                offer = found.setdefault(name, {"name": name, "ready": False, "slots": 0, "workers": {}})
                offer["ready"] |= state == AGENT_READY
                offer["slots"] += worker.slots if state == AGENT_READY else 0
                offer["workers"][worker.id] = state
    return dict(sorted(found.items()))
