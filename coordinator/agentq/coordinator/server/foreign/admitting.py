"""Who may use what both runners and others use: a runner by its own token, and others by the scope of the route."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection, Request

from agentq.coordinator.server.access import Allowed, Principal
from agentq.coordinator.server.problems import TooMany
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


class ToPoll(Allowed):
    """The scope of a poll. With a token that has asked too often it is held, and told nothing: refused three times in
    a row, a runner gives up for good.
    """

    async def __call__(self, connection: HTTPConnection) -> Principal:
        try:
            return await super().__call__(connection)
        except TooMany as wait:
            most_s: float = connection.app.state.embassy.timing.runner_poll_timeout
            # Nothing is ever heard of nobody's run, but that the server is to end.
            with service_of(connection).tides.of_run("nobody") as watch:
                await watch.next(min(wait.wait_ms / 1000, most_s))
            raise HTTPException(204) from None


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
