"""Details of a run beside its record: log, result, attempts, children, explanation."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request
from starlette.responses import Response

from agentq.coordinator.clock import monotonic_ms
from agentq.coordinator.errors import Invalid, WrongState
from agentq.coordinator.events.stream import event_sort_key
from agentq.coordinator.explain.run import RunExplanation
from agentq.coordinator.model.field_types import ENTRY_ID_PATTERN
from agentq.coordinator.model.lifecycle import TERMINAL_STATES
from agentq.coordinator.public_json.logs import log_json
from agentq.coordinator.public_json.runs import attempt_json
from agentq.coordinator.runs.logs import Logs, LogStream
from agentq.coordinator.runs.run_record import RunRecord
from agentq.coordinator.runs.wait import list_signals
from agentq.server.auth.access_control import Principal, TokenRecheck, require_scope
from agentq.server.events import sse_streams
from agentq.server.http import responses, sse
from agentq.server.http.disconnect import watch_disconnect
from agentq.server.http.parameters import COMMA_SEPARATED, ONLY_KNOWN_PARAMETERS
from agentq.server.routes.runs import RunIdPath, WaitQuery, check_run_queue, get_visible_run
from agentq.server.service import ServerService, get_service

router = APIRouter(prefix="/runs/{run_id}", tags=["runs"], dependencies=[ONLY_KNOWN_PARAMETERS])

ReadPrincipal = Annotated[Principal, require_scope("read", by_queue=True)]
ENTRIES_MAX = 500
LogPositionQuery = Annotated[str, Query(pattern=ENTRY_ID_PATTERN, description="The `id` of an entry.")]


FOLLOWED: dict[int | str, dict[str, Any]] = {
    200: {"description": "Entries; with `follow`, a stream of them.", "content": {sse.MEDIA_TYPE: {}}}
}


@router.get("/logs", summary="Read the log of a run", responses=FOLLOWED)
async def read_logs(
    request: Request,
    run_id: RunIdPath,
    caller: ReadPrincipal,
    after: LogPositionQuery | None = None,
    before: LogPositionQuery | None = None,
    from_byte: Annotated[int | None, Query(ge=0, description="Begin with the entry that has this byte.")] = None,
    limit: Annotated[int, Query(ge=1, le=ENTRIES_MAX, description="At most so many entries.")] = ENTRIES_MAX,
    tail: Annotated[int | None, Query(ge=1, le=ENTRIES_MAX, description="The newest so many entries instead.")] = None,
    stream: Annotated[list[LogStream] | None, COMMA_SEPARATED, Query(description="Only these streams.")] = None,
    wait: WaitQuery = 0,
    follow: Annotated[bool, Query(description="As server-sent events, until the run has ended.")] = False,
    last_event_id: Annotated[
        str | None, Header(alias="Last-Event-ID", pattern=ENTRY_ID_PATTERN, description="The last entry that was seen.")
    ] = None,
) -> Response:
    """Entries after a position, oldest first. `next` is the position to continue at; `ended` is true when no more will
    come.

    With `wait`, if there are no entries after that position, the answer comes as soon as there are. With `follow`, each
    entry is an event named after its stream, and the last event is `end`.
    """
    beginnings = {"tail": tail, "from_byte": from_byte, "after": after, "before": before if tail is not None else None}
    given = [name for name, value in beginnings.items() if value is not None]
    if len(given) > 1:
        raise Invalid(f"{given[0]}: it says where to begin, and so does {given[1]}; give one of them.")
    service = get_service(request)
    await check_run_queue(service, caller, run_id)
    if from_byte is not None:
        after = await service.call_in_thread(Logs(service.store).place_of, run_id, from_byte)
    if follow:
        return await _follow_log(request, run_id, last_event_id or after or "0-0", frozenset(stream or ()))
    page = _LogPage(service, run_id, after or "0-0", before, limit, tail, frozenset(stream or ()))
    deadline_ms = monotonic_ms() + round(wait * 1000)
    with service.event_hub.watch_runs(run_id) as watch:
        disconnected = await watch_disconnect(request)
        found = await service.call_in_thread(page.read)
        while not (found["entries"] or found["ended"] or disconnected.done() or service.event_hub.closing):
            left_ms = deadline_ms - monotonic_ms()
            if left_ms <= 0:
                break
            log_grown = service.log_hub.watch(run_id, found["next"])
            await watch.next(left_ms / 1000, log_grown, disconnected)
            log_grown.cancel()
            found = await service.call_in_thread(page.read)
    return responses.json_response(found)


async def _follow_log(request: Request, run_id: str, position: str, streams: frozenset[str]) -> Response:
    service = get_service(request)
    if await service.call_in_thread(Logs(service.store).is_over, run_id):
        left = await service.call_in_thread(Logs(service.store).some, run_id, position, 1)
        if not left and position != "0-0":
            return Response(status_code=204)
    return sse.SseResponse(sse_streams.stream_log(service, run_id, position, streams), TokenRecheck(request))


class _LogPage:
    """A page of a log."""

    def __init__(
        self,
        service: ServerService,
        run_id: str,
        after: str,
        before: str | None,
        limit: int,
        tail: int | None,
        streams: frozenset[str],
    ) -> None:
        self._service, self._run_id = service, run_id
        self._after, self._before, self._limit, self._tail = after, before, limit, tail
        self._streams = streams

    def read(self) -> dict[str, Any]:
        """Read the page. The end is read first: then the entries read afterwards are complete."""
        logs = Logs(self._service.store)
        ended = logs.is_over(self._run_id)
        if self._tail is not None:
            entries = logs.tail(self._run_id, self._tail)
        else:
            entries = logs.some(self._run_id, self._after, self._limit)
        is_complete = self._tail is not None or len(entries) < self._limit
        last = entries[-1].id if entries else self._after
        if self._before is not None:
            entries = [entry for entry in entries if event_sort_key(entry.id) < event_sort_key(self._before)]
        shown = [log_json(entry) for entry in entries if not self._streams or entry.stream in self._streams]
        return {"entries": shown, "next": last, "ended": ended and is_complete}


@router.get("/result", summary="Get the result of a run")
async def get_result(request: Request, run_id: RunIdPath, caller: ReadPrincipal, wait: WaitQuery = 0) -> Response:
    """Its outcome, with the end of its output. 409 while it has not ended; with `wait`, as soon as it has."""
    service = get_service(request)
    with service.event_hub.watch_runs(run_id) as watch:
        run = await get_visible_run(service, caller, run_id)

        async def read() -> RunRecord | None:
            nonlocal run
            run = await get_visible_run(service, caller, run_id)
            return run if run.state in TERMINAL_STATES else None

        if wait and run.state not in TERMINAL_STATES:
            await service.wait_until(watch, read, wait, await watch_disconnect(request))
    if run.state not in TERMINAL_STATES:
        raise WrongState(f"The run {run_id} has not ended; it is {run.state}.")
    return responses.etag_response(request, service.views.result(run))


@router.get("/attempts", summary="List the attempts of a run")
async def list_attempts(request: Request, run_id: RunIdPath, caller: ReadPrincipal) -> Response:
    """All stored attempts, the oldest first."""
    run = await get_visible_run(get_service(request), caller, run_id)
    return responses.etag_response(request, {"attempts": [attempt_json(attempt) for attempt in run.attempts]})


@router.get("/children", summary="List the live children of a run")
async def list_children(request: Request, run_id: RunIdPath, caller: ReadPrincipal) -> Response:
    """How many have not ended, and the oldest hundred of them."""
    service = get_service(request)
    await get_visible_run(service, caller, run_id)
    number, ids = await service.call_in_thread(service.run_queries.children, run_id)
    return responses.json_response({"live": number, "runs": ids})


@router.get("/why", summary="Explain the state of a run")
async def explain_run(request: Request, run_id: RunIdPath, caller: ReadPrincipal) -> Response:
    """In sentences, the most important one first."""
    service = get_service(request)
    await check_run_queue(service, caller, run_id)
    run, sentences = await service.call_in_thread(RunExplanation(service.store, service.settings).of, run_id)
    return responses.json_response({"id": run.id, "state": run.state.value, "because": sentences})


@router.get("/signals", summary="The signals that a run has not taken yet")
async def read_signals(request: Request, run_id: RunIdPath, caller: ReadPrincipal) -> Response:
    """The oldest first, with who sent each."""
    service = get_service(request)
    await get_visible_run(service, caller, run_id)
    messages = await service.call_in_thread(list_signals, service.store, run_id)
    return responses.json_response({"signals": [message.record() for message in messages]})
