"""The seam by which the protocol of another system is added to the server.

A dialect is a subclass of `ServerDialect`, named by an entry point of the group `agentq.dialects`. The server makes one
of each installed dialect and uses it for three things:

1. Routes of its own, which are tried after those of agentq.
2. Fields that its clients expect in the records of runs and sessions (`RecordFields`). A field of agentq overrides one
   of a dialect with the same name.
3. The first answer to a request on a path that both systems have. A dialect answers only requests in its own format,
   and returns None for all others.

The server imports no dialect, and its own records hold no field of one. A dialect uses the server through
`DialectServer`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.metadata import entry_points
from typing import Any, ClassVar, NamedTuple, ParamSpec, Protocol, TypeVar

from fastapi import APIRouter, FastAPI
from starlette.requests import Request
from starlette.responses import Response

from agentq.coordinator.config.server_settings import ServerSettings
from agentq.coordinator.config.settings import Settings
from agentq.coordinator.runs.queries import RunFilter, RunQueries
from agentq.coordinator.sessions.verbs import Sessions
from agentq.coordinator.storage.store import NamespaceStore
from agentq.server.auth.access_control import Principal
from agentq.server.events.hub import EventHub
from agentq.server.record_views import JsonObject, RecordFields, RecordViews

ENTRY_POINTS = "agentq.dialects"
P = ParamSpec("P")
T = TypeVar("T")


class DialectServer(Protocol):
    """The parts of the server that a dialect may use."""

    settings: Settings
    server_settings: ServerSettings
    store: NamespaceStore
    run_queries: RunQueries
    sessions: Sessions
    event_hub: EventHub
    views: RecordViews

    async def call_in_thread(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a blocking function in a thread of the server."""


class RouteExample(NamedTuple):
    """An example of a route's response, and of its request body if it has one."""

    response: JsonObject | list[JsonObject]
    body: JsonObject | None = None


class ListPage(NamedTuple):
    """The requested page of a list."""

    limit: int
    cursor: str | None


class ServerDialect(RecordFields):
    """Base class of dialects: one instance for each server. It adds nothing by itself."""

    routers: ClassVar[Sequence[APIRouter]] = ()
    examples: ClassVar[Mapping[tuple[str, str], RouteExample]] = {}
    """Examples for the API documents, by method and path."""
    response_models: ClassVar[Mapping[tuple[str, str], Any]] = {}
    """Models of the dialect's responses on paths of agentq, by method and path, for the API documents."""
    parameters: ClassVar[Mapping[tuple[str, str], Sequence[JsonObject]]] = {}
    """Query parameters that the dialect adds to routes of agentq, by method and path, as OpenAPI describes them."""

    def __init__(self, server: DialectServer) -> None:
        self.server = server

    def install(self, app: FastAPI) -> None:
        """Add to the app what the routes need, and handlers for the dialect's own exceptions."""

    def start(self) -> None:
        """Start background tasks, on the server's loop."""

    async def stop(self) -> None:
        """Stop the background tasks."""

    # ---- requests on paths of agentq

    def check_run_id(self, text: str) -> None:
        """Refuse a run id in the dialect's own format."""

    def is_from_executor(self, body: object) -> bool:
        """Whether the body of `POST /sessions` comes from an executor, which uses a runner's token."""
        return False

    async def submit_run(
        self,
        request: Request,
        caller: Principal,
        body: object,
        key: str | None,
    ) -> Response | None:
        return None

    async def list_runs(self, request: Request, which: RunFilter, page: ListPage) -> Response | None:
        return None

    async def create_session(self, request: Request, caller: Principal, body: object) -> Response | None:
        return None

    async def list_sessions(self, request: Request, caller: Principal) -> Response | None:
        return None

    async def get_session(self, request: Request, caller: Principal, name: str) -> Response | None:
        return None


@cache
def load_dialects() -> tuple[type[ServerDialect], ...]:
    """The installed dialects, sorted by the names of their entry points."""
    installed = sorted(entry_points(group=ENTRY_POINTS), key=lambda each: each.name)
    return tuple(each.load() for each in installed)
