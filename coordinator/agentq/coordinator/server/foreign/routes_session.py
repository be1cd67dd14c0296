"""What foreign executors and clients call of sessions, beside what all have of them."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from pydantic import ValidationError
from starlette.responses import JSONResponse, Response

from agentq.coordinator.errors import NotFound
from agentq.coordinator.server import bodies, problems, views
from agentq.coordinator.server.access import Principal, allowed
from agentq.coordinator.server.foreign.admitting import Beginning, OrRunner, is_executors
from agentq.coordinator.server.foreign.asking import Asked
from agentq.coordinator.server.foreign.conversing import EVENTS_A_PAGE
from agentq.coordinator.server.foreign.routes_runner import embassy_of, fields_of
from agentq.coordinator.server.routers import sessions
from agentq.coordinator.server.service import service_of
from agentq.coordinator.tokens import Scope

router = APIRouter(tags=["foreign sessions"])

Reader = Annotated[Principal, Depends(OrRunner(Scope.READ))]
Submitter = Annotated[Principal, allowed("submit")]
Executor = Annotated[Principal, allowed("work", bound=True)]


@router.get("/sessions/by-name/{session_name}", summary="A session by its name")
async def by_name(request: Request, caller: Reader, session_name: str) -> Response:
    embassy = embassy_of(request)

    def look() -> dict[str, Any]:
        return embassy.conversing.fields(embassy.attending.permitted(session_name, caller.bound))

    return views.told({"session": await service_of(request).ask(look)})


@router.get("/sessions/{session_id}/status", summary="The status of a session; `not_existent` of one that is not there")
async def status(request: Request, caller: Reader, session_id: str) -> Response:
    embassy = embassy_of(request)

    def look() -> str:
        if embassy.conversing.exists(session_id):
            embassy.attending.permitted(session_id, caller.bound)
        return embassy.conversing.status(session_id)

    return JSONResponse({"status": await service_of(request).ask(look)})


@router.get("/sessions/{session_id}/result", summary="The newest result of a session")
async def result(request: Request, caller: Reader, session_id: str) -> Response:
    embassy = embassy_of(request)

    def look() -> dict[str, Any]:
        return embassy.conversing.result(embassy.attending.permitted(session_id, caller.bound))

    return views.told(await service_of(request).ask(look))


@router.get("/sessions/{session_id}/affinity", summary="Where the conversation of a session is")
async def affinity(request: Request, caller: Reader, session_id: str) -> Response:
    conversing, attending = embassy_of(request).conversing, embassy_of(request).attending

    def look() -> dict[str, Any]:
        session = attending.permitted(session_id, caller.bound)
        about = conversing.about(session)
        kept = {name: about.get(name) or None for name in ("hostname", "project_dir", "executor_profile")}
        return {"affinity": {"session_id": about.get("given_id") or session, **kept}}

    return views.told(await service_of(request).ask(look))


@router.get("/sessions/{session_id}/events", summary="What executors told of a session, the oldest first")
async def events(
    request: Request,
    caller: Reader,
    session_id: str,
    after: Annotated[str, Query(max_length=40, pattern=r"^(\d+-\d+)?$", description="`next` of the page before.")] = "",
    limit: Annotated[int, Query(ge=1, le=EVENTS_A_PAGE, description="At most so many.")] = EVENTS_A_PAGE,
) -> Response:
    """A page of them; `next` is null on the last."""
    conversing, attending = embassy_of(request).conversing, embassy_of(request).attending

    def look() -> dict[str, Any]:
        told = conversing.told(attending.permitted(session_id, caller.bound), after, limit)
        page = [{**each.event, "id": each.id, "run_id": each.run or None} for each in told]
        return {"events": page, "next": told[-1].id if len(told) == limit else None}

    return views.told(await service_of(request).ask(look))


@router.post("/sessions/{session_id}/events", status_code=201, summary="Tell what happens in a session")
async def tell(request: Request, caller: Executor, session_id: str) -> Response:
    fields = await fields_of(request)
    told = await service_of(request).ask(embassy_of(request).attending.tell, session_id, fields, caller.bound)
    return JSONResponse({"ok": True, "id": told}, 200 if "session_name" in fields else 201)


@router.post("/sessions/{session_id}/bind", summary="An executor has begun a session's turn")
async def bind(request: Request, caller: Executor, session_id: str) -> Response:
    fields = await fields_of(request)
    return views.told(
        await service_of(request).ask(embassy_of(request).attending.bind, session_id, fields, caller.bound)
    )


@router.patch("/sessions/{session_id}/metadata", summary="Change what is known of a session")
async def change(request: Request, caller: Executor, session_id: str) -> Response:
    fields = await fields_of(request)
    return views.told(
        await service_of(request).ask(embassy_of(request).attending.change, session_id, fields, caller.bound)
    )


@router.post("/sessions/{session_id}/stop", summary="Stop all that a session does")
async def stop(request: Request, caller: Submitter, session_id: str) -> Response:  # noqa: ARG001
    return views.told(await service_of(request).ask(embassy_of(request).stopping.stop_session, session_id))


@router.delete("/sessions/{session_id}", summary="Delete a session that does nothing")
async def delete(request: Request, caller: Submitter, session_id: str) -> Response:  # noqa: ARG001
    conversing = embassy_of(request).conversing

    def discard() -> dict[str, Any]:
        session = conversing.found(session_id)
        counts = conversing.discard(session)
        return {
            "ok": True,
            "session_id": session_id,
            "deleted": counts,
            "runs_removed_from_cache": counts["runs_count"],
        }

    return views.told(await service_of(request).ask(discard))


@router.post("/runs/{run_id}/stop", summary="Stop a run")
async def stop_run(request: Request, caller: Submitter, run_id: str) -> Response:  # noqa: ARG001
    return views.told(await service_of(request).ask(embassy_of(request).stopping.stop_run, run_id))


async def submitted(request: Request, caller: Principal, body: Any) -> Response:
    """The answer to a body of `POST /runs` that is in a dialect."""
    caller.check_queue(Asked.read(body).queue)
    accepted = await service_of(request).ask(embassy_of(request).asking.submit, body)
    return JSONResponse(accepted.body(), accepted.status, {"location": f"/runs/{accepted.run_id}"})


# ---- what our own routes have, too: these come before them, and go on with them


@router.post("/sessions", include_in_schema=False)
async def begin(request: Request, caller: Annotated[Principal, Depends(Beginning(Scope.SUBMIT))]) -> Response:
    """An executor of dialect A has begun a session, or somebody begins one of ours."""
    body = await request.body()
    if is_executors(body):
        fields = await fields_of(request)
        return views.told(await service_of(request).ask(embassy_of(request).attending.begin, fields, caller.bound))
    try:
        return await sessions.new(request, bodies.NewSession.model_validate_json(body))
    except ValidationError as error:
        raise problems.invalid(error) from error


@router.get("/sessions", include_in_schema=False, dependencies=[allowed("read")])
async def page(request: Request, limit: sessions.Limit = 100, cursor: sessions.Cursor = None) -> Response:
    """Sessions in the words of all."""
    service, conversing = service_of(request), embassy_of(request).conversing
    sessions.check_cursor(cursor)

    def look() -> dict[str, Any]:
        shelf = service.sessions.list(limit=limit, cursor=cursor)
        found = [conversing.also(each.name, conversing.about(each.name), each) for each in shelf.sessions]
        shown = [also | views.session_view(each) for also, each in zip(found, shelf.sessions, strict=True)]
        return {"sessions": shown, "next": shelf.cursor}

    return views.told(await service.ask(look))


@router.get("/sessions/{session_id}", include_in_schema=False)
async def one(request: Request, caller: Reader, session_id: str) -> Response:
    """A session in the words of all, by any of its names."""
    service, conversing = service_of(request), embassy_of(request).conversing

    def look() -> dict[str, Any] | None:
        if not conversing.exists(session_id):
            return None
        session = embassy_of(request).attending.permitted(session_id, caller.bound)
        fields = conversing.fields(session)
        try:
            own = views.session_view(service.sessions.get(session))
        except NotFound:
            own = {}
        return {"session": fields, **fields, **own, "session_id": fields["session_id"]}

    found = await service.ask(look)
    return await sessions.get(request, session_id) if found is None else views.tagged(request, found)
