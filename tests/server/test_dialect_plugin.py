"""The interface of dialects, with one that is defined here; and the server without dialects."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from typing import Any, ClassVar

import httpx
import pytest
from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response
from support.servers import Server

from agentq.coordinator.config.server_settings import ServerSettings
from agentq.coordinator.config.settings import Settings
from agentq.coordinator.model.ids import new_nonce
from agentq.coordinator.runs.queries import RunFilter
from agentq.coordinator.runs.run_record import RunListEntry, RunRecord
from agentq.coordinator.sessions.verbs import SessionRecord
from agentq.dialects.agent_orchestrator.plugin import AgentOrchestrator
from agentq.server.app import create_app
from agentq.server.auth.access_control import Principal, require_scope
from agentq.server.dialect import ListPage, RouteExample, ServerDialect, load_dialects
from agentq.server.record_views import JsonObject, RecordFields

COMMAND = {"kind": "command", "argv": ["true"]}
SESSION = {"name": "review", "agent": "claude"}
router = APIRouter(tags=["greetings"])


@router.get("/greeting", summary="Greet", dependencies=[require_scope("read")])
async def greet() -> dict[str, str]:
    return {"greeting": "hello"}


class Greetings(ServerDialect):
    """Says hello in everything."""

    routers = (router,)
    examples: ClassVar = {("GET", "/greeting"): RouteExample({"greeting": "hello"})}
    parameters: ClassVar = {("GET", "/runs"): ({"name": "greeting", "in": "query", "schema": {"type": "string"}},)}

    def run_fields(self, run: RunRecord) -> JsonObject:
        return {"greeting": f"hello {run.spec.kind}", "id": "agentq has the last word"}

    def run_entry_fields(self, run: RunListEntry) -> JsonObject:
        return {"greeting": f"hello {run.queue}"}

    def session_fields(self, session: SessionRecord) -> JsonObject:
        return {"greeting": f"hello {session.name}"}

    async def submit_run(self, request: Request, caller: Principal, body: Any, key: str | None) -> Response | None:
        del request, caller, key
        return JSONResponse({"greeting": "hello yourself"}, 202) if "greeting" in body else None

    async def list_runs(self, request: Request, which: RunFilter, page: ListPage) -> Response | None:
        del which
        asked = request.query_params.get("greeting")
        return None if asked is None else JSONResponse({"greeting": asked, "limit": page.limit})


@pytest.fixture
def settings(valkey: Server) -> Settings:
    return Settings(url=valkey.url, namespace=f"dialects-{new_nonce()}")


Ask = Callable[..., httpx.Response]


def serve(settings: Settings, *dialects: type[ServerDialect]) -> AbstractContextManager[Ask]:
    """The app with these dialects, without a port; returns a function that sends requests."""

    @asynccontextmanager
    async def life() -> AsyncIterator[httpx.AsyncClient]:
        app = create_app(settings, ServerSettings(duties=False), dialects, open_to_all=True)
        transport = httpx.ASGITransport(app)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client,
        ):
            yield client

    @contextmanager
    def asking() -> Iterator[Ask]:
        with asyncio.Runner() as runner:
            living = life()
            client = runner.run(living.__aenter__())
            try:
                yield lambda method, path, **more: runner.run(client.request(method, path, **more))
            finally:
                runner.run(living.__aexit__(None, None, None))

    return asking()


def test_a_dialect_adds_a_route_and_fields_of_records(settings: Settings) -> None:
    with serve(settings, Greetings) as ask:
        ask("POST", "/sessions", json=SESSION)
        run = ask("POST", "/runs", json=COMMAND).json()["id"]
        found = ask("GET", f"/runs/{run}").json()
        listed = ask("GET", "/runs?limit=5").json()["runs"]
        shown = ask("GET", "/sessions/review").json()
        document = ask("GET", "/openapi.json").json()

        assert ask("GET", "/greeting").json() == {"greeting": "hello"}

    assert (found["id"], found["greeting"]) == (run, "hello command")
    assert [(each["id"], each["greeting"]) for each in listed] == [(run, "hello default")]
    assert (shown["name"], shown["greeting"]) == ("review", "hello review")
    assert "greeting" in [each["name"] for each in document["paths"]["/runs"]["get"]["parameters"]]
    example = document["paths"]["/greeting"]["get"]["responses"]["200"]["content"]["application/json"]["example"]
    assert example == {"greeting": "hello"}


def test_a_dialect_answers_what_is_asked_in_its_way_and_nothing_else(settings: Settings) -> None:
    with serve(settings, Greetings) as ask:
        before = ask("GET", "/runs?limit=100").json()["runs"]
        theirs = ask("POST", "/runs", json={"greeting": "hi"})
        listed = ask("GET", "/runs?greeting=hi&limit=7").json()
        after = ask("GET", "/runs?limit=100").json()["runs"]
        ours = ask("POST", "/runs", json=COMMAND)

    assert (theirs.status_code, theirs.json()) == (202, {"greeting": "hello yourself"})
    assert listed == {"greeting": "hi", "limit": 7}
    assert after == before
    assert ours.status_code == 201


def test_without_a_dialect_there_is_nothing_of_it(settings: Settings) -> None:
    with serve(settings) as ask:
        ask("POST", "/sessions", json=SESSION)
        run = ask("POST", "/runs", json=COMMAND).json()["id"]
        names = {*ask("GET", f"/runs/{run}").json(), *ask("GET", "/sessions/review").json()}
        refused = ask("GET", "/runs?status=pending")
        routes = ask("GET", "/openapi.json").json()["paths"]

        assert ask("GET", "/runners").status_code == 404
        assert ask("POST", "/runs", json={"type": "start_session", "prompt": "hello"}).status_code == 422

    assert {"run_id", "session_id", "runner_id", "execution_mode"} & names == set()
    assert (refused.status_code, "There is no parameter 'status'" in refused.json()["detail"]) == (422, True)
    assert [path for path in routes if path.startswith(("/runner", "/agents", "/sse/sessions"))] == []


def test_the_installed_dialects_are_found_by_their_entry_points() -> None:
    assert load_dialects() == (AgentOrchestrator,)


SEAM = sorted(name for name in vars(ServerDialect) | vars(RecordFields) if not name.startswith("_"))


@pytest.mark.parametrize("method", SEAM)
def test_the_agent_orchestrator_uses_the_whole_seam(method: str) -> None:
    """A method that no dialect uses would be untested."""
    assert method in vars(AgentOrchestrator)
