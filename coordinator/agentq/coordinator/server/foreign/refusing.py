"""What foreign runners and clients are refused with: the codes and words that they know."""

from __future__ import annotations

from fastapi import FastAPI
from pydantic import JsonValue
from starlette.requests import Request
from starlette.responses import Response

from agentq.coordinator.errors import AgentqError
from agentq.coordinator.server import problems
from agentq.coordinator.server.foreign.archive import NoArchive
from agentq.coordinator.server.foreign.asking import Absent
from agentq.coordinator.server.foreign.conversing import Unfinished
from agentq.coordinator.server.foreign.roster import Collision, NotRegistered, Occupied
from agentq.coordinator.server.foreign.shelf import NoAgent, NoScript, Used
from agentq.coordinator.server.foreign.shelf_kinds import BadName
from agentq.coordinator.server.foreign.validating import Mistaken

STATUS: dict[type[AgentqError], int] = {
    NotRegistered: 401,
    Absent: 400,
    BadName: 400,
    NoArchive: 400,
    NoAgent: 400,
    NoScript: 400,
    Mistaken: 400,
    Unfinished: 400,
    Occupied: 409,
    Collision: 409,
    Used: 409,
}


def install(app: FastAPI) -> None:
    """Answer these with the codes that the dialects have for them."""
    for kind in STATUS:
        app.add_exception_handler(kind, _answer)


async def _answer(request: Request, error: Exception) -> Response:
    assert isinstance(error, AgentqError)
    detail: JsonValue = error.detail if isinstance(error, Mistaken | Occupied | Collision) else str(error)
    return problems.answer(STATUS[type(error)], detail, request_id=problems.id_of(request))
