"""How the protocol of another system is added to the server.

A dialect is a subclass of `ServerDialect`, named by an entry point of the group `agentq.dialects`. The server makes one
of each that is installed, and asks it

1. for routes of its own, which are tried after those of agentq;
2. for fields that its clients look for in the records of runs and sessions, which agentq's own fields override;
3. first, for the answer to a request on a path that both have. It answers only what is written in its own way, and
   None to all else.

The server imports no dialect, and its own records hold no field of one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from fastapi import APIRouter, FastAPI
from starlette.requests import Request
from starlette.responses import Response

if TYPE_CHECKING:
    from agentq.coordinator.runs.queries import RunFilter
    from agentq.coordinator.runs.run_record import RunListEntry, RunRecord
    from agentq.coordinator.sessions.verbs import SessionRecord
    from agentq.server.auth.access_control import Principal
    from agentq.server.service import ServerService

ENTRY_POINTS = "agentq.dialects"
JsonObject = dict[str, Any]


class RouteExample(NamedTuple):
    """What a route of a dialect answers, and what it is asked if that has a body."""

    response: JsonObject | list[JsonObject]
    body: JsonObject | None = None


class ListPage(NamedTuple):
    """Which page of a list was asked for."""

    limit: int
    cursor: str | None


class ServerDialect:
    """The protocol of another system, for one server. This one adds nothing."""

    routers: ClassVar[Sequence[APIRouter]] = ()
    examples: ClassVar[Mapping[tuple[str, str], RouteExample]] = {}
    """By method and path, for the documents of the API."""
    response_models: ClassVar[Mapping[tuple[str, str], Any]] = {}
    """Models of what it answers on paths of agentq, by method and path, for the same documents."""
    parameters: ClassVar[Mapping[tuple[str, str], Sequence[JsonObject]]] = {}
    """Query parameters that it adds to routes of agentq, by method and path, as OpenAPI describes them."""

    def __init__(self, service: ServerService) -> None:
        self.service = service

    def install(self, app: FastAPI) -> None:
        """Give the app what its routes need, and the handlers of its own exceptions."""

    def start(self) -> None:
        """Begin its tasks, on the server's loop."""

    async def stop(self) -> None:
        """End its tasks."""

    # ---- fields in records

    def run_fields(self, run: RunRecord) -> JsonObject:
        return {}

    def run_entry_fields(self, run: RunListEntry) -> JsonObject:
        return {}

    def result_fields(self, run: RunRecord) -> JsonObject:
        return {}

    def session_fields(self, session: SessionRecord) -> JsonObject:
        return {}

    def hide_secrets(self, record: JsonObject) -> JsonObject:
        """The record of a run without what only the run itself may see."""
        return record

    # ---- requests on paths of agentq

    def check_run_id(self, text: str) -> None:
        """Refuse a text that is the id of a run in its way."""

    def is_from_executor(self, body: object) -> bool:
        """Whether the body of a request for a session comes from an executor, which has a runner's token."""
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
    """The dialects that are installed, by the names of their entry points."""
    found = sorted(entry_points(group=ENTRY_POINTS), key=lambda each: each.name)
    return tuple(each.load() for each in found)
