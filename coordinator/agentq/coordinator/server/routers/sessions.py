"""Sessions: conversations with agents, turn by turn."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends, Header, Path, Query, Request
from pydantic import ValidationError
from pydantic_core import to_json
from starlette.responses import Response

from agentq.coordinator.errors import Invalid, NotFound
from agentq.coordinator.limits import LIST_A_CALL
from agentq.coordinator.server import bodies, problems, submitting, views
from agentq.coordinator.server.access import Principal, allowed
from agentq.coordinator.server.foreign.admitting import Beginning, OrRunner, is_executors
from agentq.coordinator.server.foreign.dialects import is_whole
from agentq.coordinator.server.foreign.routes_session import all_sessions, begun, named
from agentq.coordinator.server.parameters import KNOWN
from agentq.coordinator.server.problems import Denied
from agentq.coordinator.server.service import Service, service_of
from agentq.coordinator.tokens import Scope

router = APIRouter(prefix="/sessions", tags=["sessions"], dependencies=[KNOWN])

Name = Annotated[str, Path(description="The name of a session.")]
READ = allowed("read")
SUBMIT = allowed("submit")
Submitter = Annotated[Principal, allowed("submit")]
Looker = Annotated[Principal, Depends(OrRunner(Scope.READ))]
Limit = Annotated[int, Query(ge=1, le=LIST_A_CALL, description="At most so many.")]
OptionalLimit = Annotated[int | None, Query(ge=1, le=LIST_A_CALL, description="At most so many; 100 with a cursor.")]
A_PAGE = 100
Cursor = Annotated[str | None, Query(max_length=256, description="`next` of the page before.")]
NO_SESSION = "Session not found"
OF_THE_SESSION = ("kind", "agent", "session")


@router.post(
    "",
    status_code=201,
    summary="Begin a session",
    openapi_extra={"requestBody": {"content": {"application/json": {"schema": bodies.NewSession.model_json_schema()}}}},
)
async def new(request: Request, caller: Annotated[Principal, Depends(Beginning(Scope.SUBMIT))]) -> Response:
    """A conversation with an agent; with `fork`, one that goes on from where that one is.

    An executor of another system says in this way, with its `session_id`, that it has begun one.
    """
    content = await request.body()
    value = submitting.read(content) if content.strip() else {}
    if is_executors(value):
        return await begun(request, caller, value)
    try:
        return await _begin(service_of(request), bodies.NewSession.model_validate_json(content))
    except ValidationError as error:
        raise problems.invalid(error) from error


async def _begin(service: Service, body: bodies.NewSession) -> Response:
    agent = body.agent
    if agent is None and body.fork is not None:
        agent = (await service.ask(service.sessions.get, body.fork)).agent
    if agent is None:
        raise Invalid("agent: a session is with an agent; say which.")
    more: dict[str, Any] = {"cwd": body.cwd, "model": body.model, "budgets": body.budgets, "fork": body.fork}
    made = await service.ask(service.sessions.new, body.name, agent, **more)
    return views.told(views.session_view(made), 201, {"location": f"/sessions/{made.name}"})


@router.get("", summary="List sessions, the last used first")
async def page(request: Request, caller: Looker, limit: OptionalLimit = None, cursor: Cursor = None) -> Response:
    """With `limit` or `cursor` a page of sessions, of which the last has no `next`; with neither, all of them in the
    words of other systems, whose clients know of no pages.
    """
    service = service_of(request)
    if is_whole(request.query_params):
        return await all_sessions(request, caller)
    if caller.bound is not None:
        raise Denied("This token is a runner's: it may list the sessions that its runner is in, without a page.")
    if cursor is not None and not (cursor.partition(" ")[0].isdecimal() and " " in cursor):
        raise Invalid("cursor: this is none that a list of sessions has given.")

    def look() -> dict[str, Any]:
        shelf = service.sessions.list(limit=limit or A_PAGE, cursor=cursor)
        return {"sessions": [views.session_view(each) for each in shelf.sessions], "next": shelf.cursor}

    return views.told(await service.ask(look))


@router.get("/{name}", summary="A session")
async def get(request: Request, name: Name, caller: Looker) -> Response:
    """All that is known of it; `session` is the same in the words of other systems, whose ids lead here, too."""
    service = service_of(request)

    def look() -> dict[str, Any]:
        also = named(request, caller, name)
        if also is None:
            return views.session_view(service.sessions.get(name))
        try:
            own = views.session_view(service.sessions.get(also["session_name"]))
        except NotFound:
            own = {}  # that of a single run, which is none of ours
        return {**also, **own, "session_id": also["session_id"], "session": also}

    try:
        return views.tagged(request, await service.ask(look))
    except NotFound as missing:
        # Clients of other systems look for this sentence; what helps a person stands beside it.
        return problems.of_error(NotFound(NO_SESSION), problems.id_of(request), advice=str(missing))


@router.get("/{name}/turns", summary="The turns of a session, newest first", dependencies=[READ])
async def turns(request: Request, name: Name, limit: Limit = 100, cursor: Cursor = None) -> Response:
    """A page of its runs, and the line of those that have not ended, the first first."""
    service = service_of(request)
    found = await service.ask(service.sessions.turns, name, limit=limit, cursor=cursor)
    line = await service.ask(service.sessions.line, name)
    shown = [views.summary_view(run) for run in found.runs]
    return views.told({"runs": shown, "line": line, "next": found.cursor})


@router.post("/{name}/turns", status_code=201, summary="Say something in a session")
async def say(
    request: Request,
    name: Name,
    caller: Submitter,
    body: Annotated[dict[str, Any], Body(examples=[{"prompt": "Why does tests/test_parser.py fail?"}])],
    idempotency_key: Annotated[str | None, Header(max_length=255)] = None,
) -> Response:
    """A turn: `prompt`, and whatever else a run of `POST /runs` may have. It waits for those before it."""
    given = [field for field in OF_THE_SESSION if field in body]
    if given:
        raise Invalid(f"{given[0]}: this is the session's; leave it away.")
    service = service_of(request)
    session = await service.ask(service.sessions.get, name)
    run = to_json({**body, "kind": "agent", "agent": session.agent, "session": name})
    what = submitting.asked(run, submitting.read(run))
    answer = await submitting.submit(service, caller, what, key=idempotency_key, durable=False)
    return views.told(answer.body, answer.status, {"location": f"/runs/{answer.body['id']}"})


@router.post("/{name}/fork", status_code=201, summary="Go on from where a session is, beside it", dependencies=[SUBMIT])
async def fork(request: Request, name: Name, body: bodies.Fork | None = None) -> Response:
    """Both go on by themselves."""
    service = service_of(request)
    agent = (await service.ask(service.sessions.get, name)).agent
    made = await service.ask(service.sessions.new, (body or bodies.Fork()).name, agent, fork=name)
    return views.told(views.session_view(made), 201, {"location": f"/sessions/{made.name}"})


@router.post("/{name}/close", summary="Let a session take no more turns", dependencies=[SUBMIT])
async def close(request: Request, name: Name, body: bodies.Close | None = None) -> Response:
    """What is in its line goes on, or with `cancel` is cancelled."""
    service = service_of(request)
    closed = await service.ask(service.sessions.close, name, cancel=(body or bodies.Close()).cancel)
    return views.told(views.session_view(closed))
