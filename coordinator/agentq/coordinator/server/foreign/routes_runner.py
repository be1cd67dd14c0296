"""What foreign runners call: `/runner/*` and `/runners`."""

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
from agentq.coordinator.server import views
from agentq.coordinator.server.access import Principal, Standing, allowed
from agentq.coordinator.server.departing import departing
from agentq.coordinator.server.foreign.admitting import REPORT_S, ToPoll, ToReport, held
from agentq.coordinator.server.foreign.embassy import Embassy
from agentq.coordinator.server.foreign.looking import Look
from agentq.coordinator.server.foreign.presence import BEAT_MS, GONE_MS
from agentq.coordinator.server.foreign.registration import Registration, is_runner_id
from agentq.coordinator.server.foreign.reports import Ended
from agentq.coordinator.server.foreign.roster import NotRegistered, Occupied
from agentq.coordinator.server.foreign.speaking import moment
from agentq.coordinator.server.problems import Denied
from agentq.coordinator.server.quick import Quick
from agentq.coordinator.server.service import Service, service_of
from agentq.coordinator.server.submitting import read
from agentq.coordinator.tokens import Scope

router = APIRouter(tags=["foreign runners"], route_class=Quick)

Runner = Annotated[Principal, allowed("work", bound=True, foreign=True)]
Reporter = Annotated[Principal, Depends(ToReport(REPORT_S))]
Poller = Annotated[Principal, Depends(ToPoll(Scope.WORK, bound=True, foreign=True))]
Fields = dict[str, Any]
JSON = "application/json"
OK = b'{"ok":true}'
SELF, EXTERNAL = "self", "external"


def embassy_of(connection: HTTPConnection) -> Embassy:
    found: Embassy = connection.app.state.embassy
    return found


async def fields_of(request: Request) -> Fields:
    """The body of a request: a JSON object, or nothing."""
    body = await request.body()
    value = read(body) if body.strip() else {}
    if not isinstance(value, dict):
        raise Invalid("The body should be a JSON object.")
    return value


def runner_in(fields: Fields) -> str:
    """Whose report it is."""
    runner = fields.get("runner_id")
    if not isinstance(runner, str) or not runner:
        raise Invalid("runner_id: the id that the registration was answered with.")
    return _as_given(runner)


def _as_given(runner: str) -> str:
    """Refuse what is no runner's id before it becomes part of a key."""
    if not is_runner_id(runner):
        raise NotRegistered("Runner not registered")
    return runner


def _text(fields: Fields, name: str, default: str = "") -> str:
    value = fields.get(name, default)
    return value if isinstance(value, str) else default


async def _admitted(embassy: Embassy, service: Service, caller: Principal, runner: str) -> None:
    """Refuse a runner's token that is not this runner's."""
    if caller.bound is not None:
        check_owner(caller, await service.ask(embassy.roster.look, runner))


def check_owner(caller: Principal, look: Look) -> None:
    if not caller.may_touch(look.fields.get("token") or None):
        raise Denied("This token is another runner's.")


@router.post("/runner/register", summary="Register a runner, in any dialect")
async def register(request: Request, caller: Runner) -> Response:
    """An empty body is a registration, too. The same identity gets the same id, where its dialect has one."""
    embassy, service = embassy_of(request), service_of(request)
    registration = Registration.read(await fields_of(request)).within(caller.queues)
    for queue in registration.said_queues:
        caller.check_queue(queue)
    runner = await _registered(embassy, service, registration, caller.bound or "")
    embassy.lobby.forget(runner)
    timing = embassy.timing
    return views.told(
        {
            "runner_id": runner,
            "poll_endpoint": "/runner/runs",
            "poll_timeout_seconds": _number(timing.runner_poll_timeout),
            "heartbeat_interval_seconds": _number(timing.runner_heartbeat_interval),
        }
    )


async def _registered(embassy: Embassy, service: Service, registration: Registration, token: str) -> str:
    """Take a runner in. One whose predecessor polls at another server waits until that one is known to be there."""
    until_ms = monotonic_ms() + GONE_MS + BEAT_MS
    while True:
        try:
            found: str = await service.ask(embassy.roster.register, registration, token)
            return found
        except Occupied as occupied:
            if occupied.here or service.tides.closing or monotonic_ms() >= until_ms:
                raise
        await asyncio.sleep(BEAT_MS / 1000)


def _number(seconds: float) -> float:
    return int(seconds) if seconds == int(seconds) else seconds


@router.get("/runner/runs", summary="Wait for something to do", responses={204: {"description": "Nothing came."}})
async def poll(request: Request, caller: Poller, runner_id: str) -> Response:
    """A run, runs or sessions to stop, scripts to fetch, or that it was deregistered: one of these. Or 204, no body."""
    embassy = embassy_of(request)
    if embassy.lobby.has(_as_given(runner_id)):
        # Its poll that is under way ends with this one, so that nobody else may send it.
        with suppress(Unreachable, TryLater):  # a poll is never answered that
            await _admitted(embassy, service_of(request), caller, runner_id)

    def may_touch(token: str) -> bool:
        return caller.may_touch(token or None)

    gone = await departing(request)
    told = await embassy.polling.poll(runner_id, gone, may_touch, Standing(request, every_ms=0).check)
    return Response(status_code=204) if told is None else views.told(told)


@router.post("/runner/heartbeat", summary="Say that a runner is alive")
async def heartbeat(request: Request, caller: Runner) -> Response:
    """Renews the lease of everything that it holds."""
    embassy, service = embassy_of(request), service_of(request)
    runner = runner_in(await fields_of(request))

    def beat() -> None:
        look = embassy.roster.look(runner)
        check_owner(caller, look)
        embassy.roster.beat(look)
        embassy.reports.overdue(look)

    await service.ask(beat)
    return Response(OK, media_type=JSON)


@router.post("/runner/runs/{run_id}/started", summary="A run's process has begun")
async def started(request: Request, caller: Reporter, run_id: str) -> Response:
    rush = embassy_of(request).rush
    return await _reported(request, caller, lambda runner, _: rush.started(Ended(runner, run_id)))


@router.post("/runner/runs/{run_id}/completed", summary="A run is done")
async def completed(request: Request, caller: Reporter, run_id: str) -> Response:
    rush = embassy_of(request).rush

    async def report(runner: str, fields: Fields) -> None:
        await rush.completed(Ended(runner, run_id, _text(fields, "session_status") or None))

    return await _reported(request, caller, report)


@router.post("/runner/runs/{run_id}/failed", summary="A run's process failed")
async def failed(request: Request, caller: Reporter, run_id: str) -> Response:
    ask, reports = service_of(request).ask, embassy_of(request).reports
    return await _reported(
        request, caller, lambda runner, fields: ask(reports.failed, runner, run_id, _text(fields, "error"))
    )


@router.post("/runner/runs/{run_id}/stopped", summary="A run's process was stopped")
async def stopped(request: Request, caller: Reporter, run_id: str) -> Response:
    ask, reports = service_of(request).ask, embassy_of(request).reports
    return await _reported(
        request, caller, lambda runner, fields: ask(reports.stopped, runner, run_id, _text(fields, "signal", "SIGTERM"))
    )


@router.post("/runner/sessions/{session_id}/status", summary="A process that waited for a session's next turn is gone")
async def exited(request: Request, caller: Reporter, session_id: str) -> Response:
    ask, attending = service_of(request).ask, embassy_of(request).attending
    return await _reported(request, caller, lambda _, fields: ask(attending.exited, session_id, fields))


async def _reported(request: Request, caller: Principal, report: Callable[[str, Fields], Awaitable[None]]) -> Response:
    """Take a report; through an outage of the store it is held, since it is not sent again."""
    embassy, service = embassy_of(request), service_of(request)
    fields = await fields_of(request)
    runner = runner_in(fields)

    async def act() -> None:
        await _admitted(embassy, service, caller, runner)
        await report(runner, fields)

    await held(service, REPORT_S, act)
    return Response(OK, media_type=JSON)


@router.get("/runners", summary="List foreign runners")
async def runners(request: Request, caller: Annotated[Principal, allowed("read")]) -> Response:  # noqa: ARG001
    """Those that are registered and have not been declared lost."""
    embassy, service = embassy_of(request), service_of(request)
    return views.told({"runners": await service.ask(_listed, embassy)})


def _listed(embassy: Embassy) -> list[Fields]:
    now_ms, stale_ms = embassy.roster.store.time_ms(), round(embassy.timing.runner_heartbeat_timeout * 1000)
    return [
        {
            "runner_id": worker.id,
            "registered_at": moment(int(fields.get("registered_at_ms", worker.seen_at_ms))),
            "last_heartbeat": moment(worker.seen_at_ms),
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
        for worker, registration, fields in embassy.roster.everyone()
    ]


@router.delete("/runners/{runner_id}", summary="Deregister a runner")
async def deregister(
    request: Request,
    caller: Runner,
    runner_id: str,
    self_: Annotated[bool, Query(alias="self", description="It is the runner itself that leaves.")] = False,
) -> Response:
    """By itself it is gone at once, and what it holds goes to others. By others it is told so with its next poll."""
    embassy, service = embassy_of(request), service_of(request)
    if not is_runner_id(runner_id):
        raise NotFound("Runner not found")
    look = await service.ask(embassy.roster.known, runner_id)
    check_owner(caller, look)
    if self_:
        await service.ask(embassy.roster.leave, runner_id)
        told = "Runner deregistered"
    else:
        await service.ask(embassy.roster.dismiss, runner_id)
        embassy.lobby.call_runner(runner_id)
        told = "Runner marked for deregistration"
    return JSONResponse({"ok": True, "message": told, "initiated_by": SELF if self_ else EXTERNAL})
