"""What is said of runs that are there: cancel, retry, signal, approve and deny, wake, forget."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Header, Request
from starlette.responses import Response

from agentq.coordinator.lifecycle import State
from agentq.coordinator.server import bodies, views
from agentq.coordinator.server.access import Principal, allowed
from agentq.coordinator.server.parameters import KNOWN
from agentq.coordinator.server.routers.runs import RunId, check_queue, visible
from agentq.coordinator.server.service import service_of

router = APIRouter(prefix="/runs/{run_id}", tags=["runs"], dependencies=[KNOWN])

Caller = Annotated[Principal, allowed("submit", by_queue=True)]
Operation = Annotated[
    str | None,
    Header(alias="idempotency-key", max_length=255, description="Sent again with the same key, it is done once."),
]


async def _say(
    request: Request, caller: Principal, run_id: str, verb: Callable[..., State], *words: Any, **more: Any
) -> Response:
    service = service_of(request)
    await check_queue(service, caller, run_id)
    state = await service.ask(verb, run_id, *words, **more)
    return views.told({"id": run_id, "state": state.value})


@router.post("/cancel", summary="End a run")
async def cancel(request: Request, run_id: RunId, caller: Caller, body: bodies.Cancel | None = None) -> Response:
    """One that is held stays as it is until its worker confirms the stop, or `stop_ms` have passed."""
    said = body or bodies.Cancel()
    return await _say(request, caller, run_id, service_of(request).queue.cancel, said.reason, stop_ms=said.stop_ms)


@router.post("/retry", summary="Let an ended run begin again")
async def retry(request: Request, run_id: RunId, caller: Caller, operation: Operation = None) -> Response:
    """With fresh budgets. With an `Idempotency-Key`, sent again it changes nothing."""
    return await _say(request, caller, run_id, service_of(request).queue.requeue, operation=operation)


@router.post("/signal", summary="Send a run something to know")
async def signal(
    request: Request, run_id: RunId, caller: Caller, body: bodies.Signal, operation: Operation = None
) -> Response:
    """Kept until the run has waited for it; a run that waits for it now goes on."""
    verb = service_of(request).queue.signal
    return await _say(request, caller, run_id, verb, body.name, body.data, by=caller.name, operation=operation)


@router.post("/approve", summary="Say yes to what a run asks for")
async def approve(
    request: Request, run_id: RunId, caller: Caller, body: bodies.Judgement | None = None, operation: Operation = None
) -> Response:
    """It goes on with that, and with the comment."""
    comment, verb = (body or bodies.Judgement()).comment, service_of(request).queue.approve
    return await _say(request, caller, run_id, verb, comment, by=caller.name, operation=operation)


@router.post("/deny", summary="Say no to what a run asks for")
async def deny(
    request: Request, run_id: RunId, caller: Caller, body: bodies.Judgement | None = None, operation: Operation = None
) -> Response:
    """It goes on with that, and decides what it means."""
    comment, verb = (body or bodies.Judgement()).comment, service_of(request).queue.deny
    return await _say(request, caller, run_id, verb, comment, by=caller.name, operation=operation)


@router.post("/wake", summary="Want a run awake")
async def wake(request: Request, run_id: RunId, caller: Caller) -> Response:
    """If it sleeps it goes on, if it is about to sleep it does not."""
    return await _say(request, caller, run_id, service_of(request).queue.wake)


@router.delete("", status_code=204, summary="Forget an ended run before its time")
async def forget(
    request: Request, run_id: RunId, caller: Annotated[Principal, allowed("admin", by_queue=True)]
) -> Response:
    """Its record and its log are deleted."""
    service = service_of(request)
    run = await visible(service, caller, run_id)
    (refused,) = await service.ask(service.queue.forget, [(run_id, run.state)])
    if refused is not None:
        raise refused
    return Response(status_code=204)
