"""Routes for runners: `/runner/*` and `/runners`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse, Response

from agentq.coordinator.clock import monotonic_ms
from agentq.coordinator.errors import Invalid, NotFound, TryLater, Unreachable
from agentq.coordinator.security.tokens import TokenScope
from agentq.dialects.agent_orchestrator.auth import REPORT_TIMEOUT_S, PollScope, ReportScope, retry_through_outage
from agentq.dialects.agent_orchestrator.run_translation import format_time
from agentq.dialects.agent_orchestrator.runners.registration import RunnerRegistration, is_runner_id
from agentq.dialects.agent_orchestrator.runners.registry import DuplicateRunner, RunnerNotRegistered
from agentq.dialects.agent_orchestrator.runners.run_reports import RunReport
from agentq.dialects.agent_orchestrator.runners.server_liveness import LIVENESS_INTERVAL_MS, LIVENESS_TIMEOUT_MS
from agentq.dialects.agent_orchestrator.runners.snapshot import RunnerSnapshot
from agentq.dialects.agent_orchestrator.services import DialectServices
from agentq.server.auth.access_control import Principal, TokenRecheck, require_scope
from agentq.server.http import responses
from agentq.server.http.disconnect import watch_disconnect
from agentq.server.http.fast_routes import FastRoute
from agentq.server.http.problems import Denied
from agentq.server.service import ServerService, get_service
from agentq.server.submission import parse_json

router = APIRouter(tags=["dialect runners"], route_class=FastRoute)

RunnerPrincipal = Annotated[Principal, require_scope("work", bound=True, for_runners=True)]
ReportPrincipal = Annotated[Principal, Depends(ReportScope(REPORT_TIMEOUT_S))]
PollPrincipal = Annotated[Principal, Depends(PollScope(TokenScope.WORK, bound=True, for_runners=True))]
Fields = dict[str, Any]
JSON_TYPE = "application/json"
OK_BODY = b'{"ok":true}'
SELF_INITIATED, EXTERNALLY_INITIATED = "self", "external"


def get_services(connection: HTTPConnection) -> DialectServices:
    found: DialectServices = connection.app.state.agent_orchestrator
    return found


async def read_fields(request: Request) -> Fields:
    """The body of a request: a JSON object; empty if there is none."""
    body = await request.body()
    value = parse_json(body) if body.strip() else {}
    if not isinstance(value, dict):
        raise Invalid("The body should be a JSON object.")
    return value


def read_runner_id(fields: Fields) -> str:
    """The id of the runner that sends a report."""
    runner = fields.get("runner_id")
    if not isinstance(runner, str) or not runner:
        raise Invalid("runner_id: the id that the registration was answered with.")
    return _check_runner_id(runner)


def _check_runner_id(runner: str) -> str:
    """Refuse an invalid runner id before it becomes part of a key."""
    if not is_runner_id(runner):
        raise RunnerNotRegistered("Runner not registered")
    return runner


def _get_text(fields: Fields, name: str, default: str = "") -> str:
    value = fields.get(name, default)
    return value if isinstance(value, str) else default


async def _check_runner_token(
    services: DialectServices, service: ServerService, caller: Principal, runner: str
) -> None:
    """Refuse a token that is bound to another runner."""
    if caller.bound is not None:
        check_owner(caller, await service.call_in_thread(services.runner_registry.get_snapshot, runner))


def check_owner(caller: Principal, snapshot: RunnerSnapshot) -> None:
    if not caller.owns(snapshot.fields.get("token") or None):
        raise Denied("This token is another runner's.")


@router.post("/runner/register", summary="Register a runner, in any dialect")
async def register_runner(request: Request, caller: RunnerPrincipal) -> Response:
    """An empty body is a valid registration. The same identity gets the same id, if its dialect defines one."""
    services, service = get_services(request), get_service(request)
    registration = RunnerRegistration.read(await read_fields(request)).with_default_queues(caller.queues)
    for queue in registration.requested_queues:
        caller.check_queue(queue)
    runner = await _register_when_free(services, service, registration, caller.bound or "")
    services.waiting_polls.forget_lanes(runner)
    timing = services.timing
    return responses.json_response(
        {
            "runner_id": runner,
            "poll_endpoint": "/runner/runs",
            "poll_timeout_seconds": _trim_seconds(timing.runner_poll_timeout),
            "heartbeat_interval_seconds": _trim_seconds(timing.runner_heartbeat_interval),
        }
    )


async def _register_when_free(
    services: DialectServices, service: ServerService, registration: RunnerRegistration, token: str
) -> str:
    """Register a runner. If a process with its identity polls at another server, wait until that server is known to be
    alive."""
    until_ms = monotonic_ms() + LIVENESS_TIMEOUT_MS + LIVENESS_INTERVAL_MS
    while True:
        try:
            found: str = await service.call_in_thread(services.runner_registry.register, registration, token)
            return found
        except DuplicateRunner as occupied:
            if occupied.here or service.event_hub.closing or monotonic_ms() >= until_ms:
                raise
        await asyncio.sleep(LIVENESS_INTERVAL_MS / 1000)


def _trim_seconds(seconds: float) -> float:
    return int(seconds) if seconds == int(seconds) else seconds


@router.get("/runner/runs", summary="Wait for a run or an order", responses={204: {"description": "Nothing came."}})
async def poll_runs(request: Request, caller: PollPrincipal, runner_id: str) -> Response:
    """One of these: a run, runs or sessions to stop, scripts to fetch, or that the runner was deregistered. Or 204
    without a body."""
    services = get_services(request)
    if services.waiting_polls.contains(_check_runner_id(runner_id)):
        # This poll ends the runner's poll under way, so that only the runner's own token may send it.
        with suppress(Unreachable, TryLater):  # a poll is never answered with an outage
            await _check_runner_token(services, get_service(request), caller, runner_id)

    def owns(token: str) -> bool:
        return caller.owns(token or None)

    disconnected = await watch_disconnect(request)
    body = await services.long_polls.poll(runner_id, disconnected, owns, TokenRecheck(request, every_ms=0).check)
    return Response(status_code=204) if body is None else responses.json_response(body)


@router.post("/runner/heartbeat", summary="Renew the lease of a runner")
async def receive_heartbeat(request: Request, caller: RunnerPrincipal) -> Response:
    """Renews the lease of the runner and of its runs."""
    services, service = get_services(request), get_service(request)
    runner = read_runner_id(await read_fields(request))

    def renew() -> None:
        snapshot = services.runner_registry.get_snapshot(runner)
        check_owner(caller, snapshot)
        services.runner_registry.renew_lease(snapshot)
        services.run_reports.end_overdue(snapshot)

    await service.call_in_thread(renew)
    return Response(OK_BODY, media_type=JSON_TYPE)


@router.post("/runner/runs/{run_id}/started", summary="Report that a process has begun")
async def report_started(request: Request, caller: ReportPrincipal, run_id: str) -> Response:
    take = get_services(request).report_started
    return await _take_report(request, caller, lambda runner, _: take(RunReport(runner, run_id)))


@router.post("/runner/runs/{run_id}/completed", summary="Report that a run is completed")
async def report_completed(request: Request, caller: ReportPrincipal, run_id: str) -> Response:
    take = get_services(request).report_completed

    async def report(runner: str, fields: Fields) -> None:
        await take(RunReport(runner, run_id, _get_text(fields, "session_status") or None))

    return await _take_report(request, caller, report)


@router.post("/runner/runs/{run_id}/failed", summary="Report that a process failed")
async def report_failed(request: Request, caller: ReportPrincipal, run_id: str) -> Response:
    call_in_thread, reports = get_service(request).call_in_thread, get_services(request).run_reports
    return await _take_report(
        request,
        caller,
        lambda runner, fields: call_in_thread(reports.failed, runner, run_id, _get_text(fields, "error")),
    )


@router.post("/runner/runs/{run_id}/stopped", summary="Report that a process was stopped")
async def report_stopped(request: Request, caller: ReportPrincipal, run_id: str) -> Response:
    call_in_thread, reports = get_service(request).call_in_thread, get_services(request).run_reports
    return await _take_report(
        request,
        caller,
        lambda runner, fields: call_in_thread(reports.stopped, runner, run_id, _get_text(fields, "signal", "SIGTERM")),
    )


@router.post("/runner/sessions/{session_id}/status", summary="Report that an idle process has exited")
async def report_exited(request: Request, caller: ReportPrincipal, session_id: str) -> Response:
    call_in_thread, attending = get_service(request).call_in_thread, get_services(request).executor_reports
    return await _take_report(
        request, caller, lambda _, fields: call_in_thread(attending.report_exit, session_id, fields)
    )


async def _take_report(
    request: Request, caller: Principal, report: Callable[[str, Fields], Awaitable[None]]
) -> Response:
    """Handle a report; it is held through an outage of the store, since the runner does not repeat it."""
    services, service = get_services(request), get_service(request)
    fields = await read_fields(request)
    runner = read_runner_id(fields)

    async def take() -> None:
        await _check_runner_token(services, service, caller, runner)
        await report(runner, fields)

    await retry_through_outage(service, REPORT_TIMEOUT_S, take)
    return Response(OK_BODY, media_type=JSON_TYPE)


@router.get("/runners", summary="List runners")
async def list_runners(request: Request, caller: Annotated[Principal, require_scope("read")]) -> Response:  # noqa: ARG001
    """Runners that are registered and not declared lost."""
    services, service = get_services(request), get_service(request)
    return responses.json_response({"runners": await service.call_in_thread(_describe_runners, services)})


def _describe_runners(services: DialectServices) -> list[Fields]:
    now_ms, stale_ms = services.runner_registry.store.time_ms(), round(services.timing.runner_heartbeat_timeout * 1000)
    return [
        {
            "runner_id": worker.id,
            "registered_at": format_time(int(fields.get("registered_at_ms", worker.seen_at_ms))),
            "last_heartbeat": format_time(worker.seen_at_ms),
            "hostname": registration.hostname,
            "project_dir": registration.project_dir,
            "executor_profile": registration.executor_profile or registration.executor_type,
            "executor_type": registration.executor_type,
            "executor": registration.executor.model_dump(mode="json") if registration.executor is not None else None,
            "tags": list(registration.tags),
            "require_matching_tags": registration.require_matching_tags,
            "agents": [agent.model_dump(mode="json") for agent in registration.agents],
            "status": "online" if now_ms - worker.seen_at_ms <= stale_ms else "stale",
            "seconds_since_heartbeat": max(0, now_ms - worker.seen_at_ms) / 1000,
            "slots": registration.concurrency,
            "runs": worker.runs,
        }
        for worker, registration, fields in services.runner_registry.list_runners()
    ]


@router.delete("/runners/{runner_id}", summary="Deregister a runner")
async def deregister_runner(
    request: Request,
    caller: RunnerPrincipal,
    runner_id: str,
    self_: Annotated[bool, Query(alias="self", description="It is the runner itself that leaves.")] = False,
) -> Response:
    """With `self` the runner is deregistered at once, and its runs go to others. Otherwise it is told with its next
    poll."""
    services, service = get_services(request), get_service(request)
    if not is_runner_id(runner_id):
        raise NotFound("Runner not found")
    snapshot = await service.call_in_thread(services.runner_registry.find_snapshot, runner_id)
    check_owner(caller, snapshot)
    if self_:
        await service.call_in_thread(services.runner_registry.deregister, runner_id)
        message = "Runner deregistered"
    else:
        await service.call_in_thread(services.runner_registry.mark_deregistered, runner_id)
        services.waiting_polls.wake_runner(runner_id)
        message = "Runner marked for deregistration"
    return JSONResponse(
        {"ok": True, "message": message, "initiated_by": SELF_INITIATED if self_ else EXTERNALLY_INITIATED}
    )
