"""Who may use what both runners and others use: a runner by its own token, and others by the scope of the route."""

from __future__ import annotations

from starlette.requests import HTTPConnection, Request

from agentq.coordinator.server.access import Allowed, Principal
from agentq.coordinator.server.service import service_of
from agentq.coordinator.server.submitting import read
from agentq.coordinator.tokens import Scope

WORK = Allowed(Scope.WORK, bound=True)


class OrRunner(Allowed):
    """The scope of a route; or a token that is bound to a runner, which has to be that of what is looked at."""

    def __init__(self, scope: Scope) -> None:
        super().__init__(scope, bound=True)

    async def __call__(self, connection: HTTPConnection) -> Principal:
        found = await service_of(connection).access.principal(connection)
        connection.state.token = found.token
        return (WORK if found.bound is not None else self).admit(found)


class Beginning(Allowed):
    """The scope that begins a session; or where the body is of an executor that has begun one, that of runners."""

    async def __call__(self, connection: HTTPConnection) -> Principal:
        assert isinstance(connection, Request), "a session is begun by a request"
        found = await service_of(connection).access.principal(connection)
        connection.state.token = found.token
        body = await connection.body()
        return (WORK if is_executors(read(body) if body.strip() else {}) else self).admit(found)


def is_executors(body: object) -> bool:
    """Whether an executor says that it has begun: sessions of ours are begun without an id."""
    return isinstance(body, dict) and "session_id" in body
