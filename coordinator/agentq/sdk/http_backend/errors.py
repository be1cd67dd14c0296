"""What a coordinator's refusals become here: the same exceptions that Redis' answers become."""

from __future__ import annotations

import json
import re
from typing import Any

from agentq.coordinator import errors
from agentq.coordinator.errors import AgentqError

ERRORS_BY_STATUS: dict[int, type[AgentqError]] = {
    400: errors.Invalid,
    401: errors.NotAllowed,
    403: errors.NotAllowed,
    404: errors.NotFound,
    409: errors.Refused,
    413: errors.Invalid,
    422: errors.Invalid,
    429: errors.TryLater,
    502: errors.Unreachable,
    503: errors.TryLater,
    504: errors.Unreachable,
}


def response_error(status: int, body: bytes, where: str) -> AgentqError:
    """The exception that an answer stands for."""
    try:
        told = json.loads(body)
    except ValueError:
        told = {}
    if not isinstance(told, dict) or "detail" not in told:
        kind = ERRORS_BY_STATUS.get(status, AgentqError)
        return kind(f"What answers at {where} says {status}, and not as a coordinator of agentq does.")
    return problem_error(told)


def problem_error(problem: dict[str, Any]) -> AgentqError:
    """The exception that a problem stands for."""
    name = str(problem.get("type", "")).rpartition(":")[2]
    kind = _errors_by_name().get(name) or ERRORS_BY_STATUS.get(int(problem.get("status", 0)), AgentqError)
    return kind(str(problem["detail"]))


def _errors_by_name() -> dict[str, type[AgentqError]]:
    found: dict[str, type[AgentqError]] = {}
    rest: list[type[AgentqError]] = [AgentqError]
    while rest:
        kind = rest.pop()
        if kind.__module__ == errors.__name__:
            found[re.sub(r"(?<!^)(?=[A-Z])", "-", kind.__name__).lower()] = kind
            rest += kind.__subclasses__()
    return found
