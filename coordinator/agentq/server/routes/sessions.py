"""Sessions: conversations with agents, turn by turn."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends, Header, Path, Query, Request
from pydantic import ValidationError
from pydantic_core import to_json
from starlette.responses import Response

from agentq.coordinator.bounds import LIST_PER_CALL
from agentq.coordinator.errors import Invalid
from agentq.coordinator.security.tokens import TokenScope
from agentq.server import submission
from agentq.server.auth.access_control import Principal, require_scope
from agentq.server.auth.runner_scopes import ScopeOrRunner, SessionStartScope
from agentq.server.http import problems, responses
from agentq.server.http.parameters import ONLY_KNOWN_PARAMETERS, derive_operation
from agentq.server.http.problems import Denied
from agentq.server.schema import requests
from agentq.server.service import ServerService, get_service

router = APIRouter(prefix="/sessions", tags=["sessions"], dependencies=[ONLY_KNOWN_PARAMETERS])

SessionNamePath = Annotated[str, Path(description="The name of a session.")]
READ = require_scope("read")
SUBMIT = require_scope("submit")
SubmitPrincipal = Annotated[Principal, require_scope("submit")]
ReadOrRunnerPrincipal = Annotated[Principal, Depends(ScopeOrRunner(TokenScope.READ))]
LimitQuery = Annotated[int, Query(ge=1, le=LIST_PER_CALL, description="The most entries.")]
OptionalLimitQuery = Annotated[
    int | None, Query(ge=1, le=LIST_PER_CALL, description="At most so many; 100 with a cursor.")
]
IdempotencyKeyHeader = Annotated[
    str | None, Header(max_length=255, description="Sent again with the same key, it begins no other session.")
]
PAGE_SIZE = 100
CursorQuery = Annotated[str | None, Query(max_length=256, description="`next` of the page before.")]
SESSION_FIELDS = ("kind", "agent", "session")


@router.post(
    "",
    status_code=201,
    summary="Create a session",
    openapi_extra={
        "requestBody": {"content": {"application/json": {"schema": requests.CreateSessionRequest.model_json_schema()}}}
    },
)
async def create_session(
    request: Request,
    caller: Annotated[Principal, Depends(SessionStartScope(TokenScope.SUBMIT))],
    idempotency_key: IdempotencyKeyHeader = None,
) -> Response:
    """A conversation with an agent; with `fork`, one that continues from the state of another."""
    content = await request.body()
    value = submission.parse_json(content) if content.strip() else {}
    service = get_service(request)
    for dialect in service.dialects:
        if (begun := await dialect.create_session(request, caller, value)) is not None:
            return begun
    try:
        asked = requests.CreateSessionRequest.model_validate_json(content)
        return await _create_from_body(service, asked, derive_operation(caller.token, idempotency_key))
    except ValidationError as error:
        raise problems.wrap_validation_error(error) from error


async def _create_from_body(
    service: ServerService, body: requests.CreateSessionRequest, operation: str | None
) -> Response:
    agent = body.agent
    if agent is None and body.fork is not None:
        agent = (await service.call_in_thread(service.sessions.get, body.fork)).agent
    if agent is None:
        raise Invalid("agent: a session is with an agent; say which.")
    more: dict[str, Any] = {"cwd": body.cwd, "model": body.model, "budgets": body.budgets, "fork": body.fork}
    session = await service.call_in_thread(service.sessions.new, body.name, agent, **more, operation=operation)
    return responses.json_response(service.views.session(session), 201, {"location": f"/sessions/{session.name}"})


@router.get("", summary="List sessions, the last used first")
async def list_sessions(
    request: Request, caller: ReadOrRunnerPrincipal, limit: OptionalLimitQuery = None, cursor: CursorQuery = None
) -> Response:
    """A page of sessions; the last has no `next`."""
    service = get_service(request)
    for dialect in service.dialects:
        if (listed := await dialect.list_sessions(request, caller)) is not None:
            return listed
    if caller.bound is not None:
        raise Denied("This token is a runner's: it may list the sessions that its runner is in, without a page.")
    if cursor is not None and not (cursor.partition(" ")[0].isdecimal() and " " in cursor):
        raise Invalid("cursor: this is none that a list of sessions has given.")

    def read() -> dict[str, Any]:
        page = service.sessions.list(limit=limit or PAGE_SIZE, cursor=cursor)
        damaged = {"damaged": page.damaged} if page.damaged else {}
        return {
            "sessions": [service.views.session(each) for each in page.sessions],
            "next": page.cursor,
        } | damaged

    return responses.json_response(await service.call_in_thread(read))


@router.get("/{name}", summary="Get a session")
async def get_session(request: Request, name: SessionNamePath, caller: ReadOrRunnerPrincipal) -> Response:
    """The record of a session."""
    service = get_service(request)
    for dialect in service.dialects:
        if (found := await dialect.get_session(request, caller, name)) is not None:
            return found
    return responses.etag_response(
        request, service.views.session(await service.call_in_thread(service.sessions.get, name))
    )


@router.get("/{name}/turns", summary="List the turns of a session, newest first", dependencies=[READ])
async def list_turns(
    request: Request, name: SessionNamePath, limit: LimitQuery = 100, cursor: CursorQuery = None
) -> Response:
    """A page of its runs, and the queued turns that have not ended, the first first."""
    service = get_service(request)
    found = await service.call_in_thread(service.sessions.turns, name, limit=limit, cursor=cursor)
    line = await service.call_in_thread(service.sessions.line, name, LIST_PER_CALL)
    shown = [service.views.run_entry(run) for run in found.runs]
    return responses.json_response({"runs": shown, "line": line, "next": found.cursor})


@router.post("/{name}/turns", status_code=201, summary="Add a turn to a session")
async def add_turn(
    request: Request,
    name: SessionNamePath,
    caller: SubmitPrincipal,
    body: Annotated[dict[str, Any], Body(examples=[{"prompt": "Why does tests/test_parser.py fail?"}])],
    idempotency_key: Annotated[str | None, Header(max_length=255)] = None,
) -> Response:
    """A turn: `prompt`, and any other field of a run of `POST /runs`. It waits for the turns before it."""
    given = [field for field in SESSION_FIELDS if field in body]
    if given:
        raise Invalid(f"{given[0]}: this is set by the session; remove it.")
    service = get_service(request)
    session = await service.call_in_thread(service.sessions.get, name)
    run = to_json({**body, "kind": "agent", "agent": session.agent, "session": name})
    what = submission.parse_submit_body(run, submission.parse_json(run))
    answer = await submission.submit(service, caller, what, key=idempotency_key, durable=False)
    return responses.json_response(answer.body, answer.status, {"location": f"/runs/{answer.body['id']}"})


@router.post("/{name}/fork", status_code=201, summary="Fork a session", dependencies=[SUBMIT])
async def fork_session(
    request: Request, name: SessionNamePath, body: requests.ForkSessionRequest | None = None
) -> Response:
    """Both sessions continue independently."""
    service = get_service(request)
    agent = (await service.call_in_thread(service.sessions.get, name)).agent
    session = await service.call_in_thread(
        service.sessions.new, (body or requests.ForkSessionRequest()).name, agent, fork=name
    )
    return responses.json_response(service.views.session(session), 201, {"location": f"/sessions/{session.name}"})


@router.post("/{name}/close", summary="Close a session", dependencies=[SUBMIT])
async def close_session(
    request: Request, name: SessionNamePath, body: requests.CloseSessionRequest | None = None
) -> Response:
    """Queued turns continue, or are cancelled with `cancel`."""
    service = get_service(request)
    closed = await service.call_in_thread(
        service.sessions.close, name, cancel=(body or requests.CloseSessionRequest()).cancel
    )
    return responses.json_response(service.views.session(closed))
