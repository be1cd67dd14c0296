"""Status codes and messages that runners and clients of the dialect expect for errors."""

from __future__ import annotations

from fastapi import FastAPI
from pydantic import JsonValue
from starlette.requests import Request
from starlette.responses import Response

from agentq.coordinator.errors import AgentqError
from agentq.dialects.agent_orchestrator.blueprints.archive import InvalidArchive
from agentq.dialects.agent_orchestrator.blueprints.models import InvalidItemName
from agentq.dialects.agent_orchestrator.blueprints.parameter_schema import InvalidWithDetail
from agentq.dialects.agent_orchestrator.blueprints.store import AgentUnavailable, BlueprintInUse, ScriptNotFound
from agentq.dialects.agent_orchestrator.runners.registry import AgentNameCollision, DuplicateRunner, RunnerNotRegistered
from agentq.dialects.agent_orchestrator.sessions.store import UnfinishedSession
from agentq.dialects.agent_orchestrator.submission import BadDialectRequest
from agentq.server.http import problems

STATUS_BY_ERROR: dict[type[AgentqError], int] = {
    RunnerNotRegistered: 401,
    BadDialectRequest: 400,
    InvalidItemName: 400,
    InvalidArchive: 400,
    AgentUnavailable: 400,
    ScriptNotFound: 400,
    InvalidWithDetail: 400,
    UnfinishedSession: 400,
    DuplicateRunner: 409,
    AgentNameCollision: 409,
    BlueprintInUse: 409,
}


def install_handlers(app: FastAPI) -> None:
    """Answer these errors with the codes of the dialect."""
    for kind in STATUS_BY_ERROR:
        app.add_exception_handler(kind, _handle_error)


async def _handle_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, AgentqError)
    detail: JsonValue = (
        error.detail if isinstance(error, InvalidWithDetail | DuplicateRunner | AgentNameCollision) else str(error)
    )
    return problems.problem_response(STATUS_BY_ERROR[type(error)], detail, request_id=problems.get_request_id(request))
