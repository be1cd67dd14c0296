"""Actions on runs: cancel, retry, signal, approve, deny, wake, forget."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from agentq.coordinator.model.lifecycle import State
from agentq.server.auth.access_control import Principal, require_scope
from agentq.server.http import responses
from agentq.server.http.parameters import ONLY_KNOWN_PARAMETERS, IdempotencyKeyHeader
from agentq.server.routes.runs import RunIdPath, check_run_queue, get_visible_run
from agentq.server.schema import requests
from agentq.server.service import get_service

router = APIRouter(prefix="/runs/{run_id}", tags=["runs"], dependencies=[ONLY_KNOWN_PARAMETERS])

SubmitPrincipal = Annotated[Principal, require_scope("submit", by_queue=True)]


async def _act_on_run(
    request: Request, caller: Principal, run_id: str, verb: Callable[..., State], *arguments: Any, **more: Any
) -> Response:
    service = get_service(request)
    await check_run_queue(service, caller, run_id)
    state = await service.call_in_thread(verb, run_id, *arguments, **more)
    return responses.json_response({"id": run_id, "state": state.value})


@router.post("/cancel", summary="Cancel a run")
async def cancel_run(
    request: Request, run_id: RunIdPath, caller: SubmitPrincipal, body: requests.CancelRunRequest | None = None
) -> Response:
    """A claimed run keeps its state until its worker confirms the stop, or `stop_ms` have passed."""
    options = body or requests.CancelRunRequest()
    return await _act_on_run(
        request, caller, run_id, get_service(request).run_verbs.cancel, options.reason, stop_ms=options.stop_ms
    )


@router.post("/retry", summary="Retry an ended run")
async def retry_run(
    request: Request, run_id: RunIdPath, caller: SubmitPrincipal, operation: IdempotencyKeyHeader = None
) -> Response:
    """With fresh budgets. With an `Idempotency-Key`, sent again it changes nothing."""
    return await _act_on_run(request, caller, run_id, get_service(request).run_verbs.requeue, operation=operation)


@router.post("/signal", summary="Send a signal to a run")
async def signal_run(
    request: Request,
    run_id: RunIdPath,
    caller: SubmitPrincipal,
    body: requests.SignalRunRequest,
    operation: IdempotencyKeyHeader = None,
) -> Response:
    """The signal is kept until the run waits for it; a run that already waits for it continues."""
    verb = get_service(request).run_verbs.signal
    return await _act_on_run(request, caller, run_id, verb, body.name, body.data, by=caller.name, operation=operation)


@router.post("/approve", summary="Approve a run's request")
async def approve_run(
    request: Request,
    run_id: RunIdPath,
    caller: SubmitPrincipal,
    body: requests.ApprovalRequest | None = None,
    operation: IdempotencyKeyHeader = None,
) -> Response:
    """The run continues with the approval and the comment."""
    comment, verb = (body or requests.ApprovalRequest()).comment, get_service(request).run_verbs.approve
    return await _act_on_run(request, caller, run_id, verb, comment, by=caller.name, operation=operation)


@router.post("/deny", summary="Deny a run's request")
async def deny_run(
    request: Request,
    run_id: RunIdPath,
    caller: SubmitPrincipal,
    body: requests.ApprovalRequest | None = None,
    operation: IdempotencyKeyHeader = None,
) -> Response:
    """The run continues with the denial, and decides what follows."""
    comment, verb = (body or requests.ApprovalRequest()).comment, get_service(request).run_verbs.deny
    return await _act_on_run(request, caller, run_id, verb, comment, by=caller.name, operation=operation)


@router.post("/wake", summary="Wake a run")
async def wake_run(request: Request, run_id: RunIdPath, caller: SubmitPrincipal) -> Response:
    """A sleeping run continues; a run that is about to sleep stays awake."""
    return await _act_on_run(request, caller, run_id, get_service(request).run_verbs.wake)


@router.delete("", status_code=204, summary="Delete an ended run")
async def forget_run(
    request: Request,
    run_id: RunIdPath,
    caller: Annotated[Principal, require_scope("admin", by_queue=True)],
    state: Annotated[State | None, Query(description="Only if it is in this state.")] = None,
) -> Response:
    """Its record and its log are deleted."""
    service = get_service(request)
    run = await get_visible_run(service, caller, run_id)
    (refused,) = await service.call_in_thread(service.run_verbs.forget, [(run_id, state or run.state)])
    if refused is not None:
        raise refused
    return Response(status_code=204)
