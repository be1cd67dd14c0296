"""Workers: who is registered, what they hold and offer, and sending them away."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import Response

from agentq.coordinator.errors import NotFound
from agentq.coordinator.lease import order_drain
from agentq.coordinator.records import WorkerRecord
from agentq.coordinator.server import views
from agentq.coordinator.server.access import Principal, allowed
from agentq.coordinator.server.parameters import KNOWN
from agentq.coordinator.server.service import Service, service_of
from agentq.coordinator.shapes import everyone, everyone_lately, worker_record, worker_state
from agentq.coordinator.turn import AGENT_LABEL, ANY_AGENT, READY

router = APIRouter(tags=["workers"], dependencies=[KNOWN])

Id = Annotated[str, Path(description="The id of a worker.")]
READ = allowed("read")
Admin = Annotated[Principal, allowed("admin")]


async def _everyone(service: Service) -> dict[str, list[WorkerRecord]]:
    return everyone(await service.ask(service.records.workers))


async def _existing(service: Service, worker: str, *, lately: bool = False) -> list[WorkerRecord]:
    found = await (service.ask(everyone_lately, service.records) if lately else _everyone(service))
    if worker not in found:
        raise NotFound(f"There is no worker {worker[:80]!r}; /workers shows those that there are.")
    return found[worker]


@router.get("/workers", summary="List the workers that are registered", dependencies=[READ])
async def ls(
    request: Request,
    all_: Annotated[bool, Query(alias="all", description="Also those that left or were lost within the hour.")] = False,
) -> Response:
    """What each can do, what it holds, when it was last heard of."""
    service = service_of(request)
    found = await (service.ask(everyone_lately, service.records) if all_ else _everyone(service))
    return views.told({"workers": [worker_record(records) for records in found.values()]})


@router.get("/workers/{worker}", summary="A worker", dependencies=[READ])
async def get(request: Request, worker: Id) -> Response:
    """What it can do, what it holds, when it was last heard of; for an hour after its end, how it ended."""
    return views.told(worker_record(await _existing(service_of(request), worker, lately=True)))


@router.post("/workers/{worker}/drain", status_code=202, summary="Let a worker finish, and end")
async def drain(request: Request, worker: Id, caller: Admin) -> Response:
    """It claims nothing more, finishes or hands back what it holds, and ends."""
    return await _send_away(request, worker, caller, hurry=False)


@router.post("/workers/{worker}/stop", status_code=202, summary="Let a worker end now")
async def stop(request: Request, worker: Id, caller: Admin) -> Response:
    """What it runs is stopped and handed back, to run again elsewhere at no cost."""
    return await _send_away(request, worker, caller, hurry=True)


async def _send_away(request: Request, worker: str, caller: Principal, *, hurry: bool) -> Response:
    service = service_of(request)
    first, *others = await _existing(service, worker)
    detail = f"asked by {caller.name}"
    await service.ask(order_drain, service.store, first.partition, worker, detail, hurry=hurry)
    for record in others:
        with suppress(NotFound):  # it was quick to leave
            await service.ask(order_drain, service.store, record.partition, worker, detail, hurry=hurry)
    return views.told({"id": worker, "state": "draining"}, 202)


async def offers(service: Service) -> dict[str, dict[str, Any]]:
    """The agents that workers offer: who does, and whether they can take its runs now, or are at a usage limit."""
    found: dict[str, dict[str, Any]] = {}
    for worker, records in (await _everyone(service)).items():
        if worker_state(records) == "silent":
            continue
        for label, state in sorted(records[0].identity.labels.items()):
            if label.startswith(AGENT_LABEL) and label != ANY_AGENT:
                name = label.removeprefix(AGENT_LABEL)
                offer = found.setdefault(name, {"name": name, "ready": False, "slots": 0, "workers": {}})
                offer["ready"] |= state == READY
                offer["slots"] += records[0].identity.slots if state == READY else 0
                offer["workers"][worker] = state
    return dict(sorted(found.items()))
