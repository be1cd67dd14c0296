"""Scopes of routes that runners of other systems share with clients; a runner uses its own token."""

from __future__ import annotations

from starlette.requests import HTTPConnection, Request

from agentq.coordinator.security.tokens import TokenScope
from agentq.server.auth.access_control import Principal, RequiredScope
from agentq.server.service import get_service
from agentq.server.submission import parse_json

WORK_SCOPE = RequiredScope(TokenScope.WORK, bound=True, for_runners=True)


class ScopeOrRunner(RequiredScope):
    """A scope, or a token that is bound to a runner, which must own what is read."""

    def __init__(self, scope: TokenScope) -> None:
        super().__init__(scope, bound=True, for_runners=True)

    async def __call__(self, connection: HTTPConnection) -> Principal:
        found = await get_service(connection).access.authenticate(connection)
        connection.state.token = found.token
        return (WORK_SCOPE if found.bound is not None else self).authorize(found)


class SessionStartScope(RequiredScope):
    """The scope that begins a session; for a body from an executor, the scope of runners."""

    async def __call__(self, connection: HTTPConnection) -> Principal:
        assert isinstance(connection, Request), "a session is begun by a request"
        service = get_service(connection)
        found = await service.access.authenticate(connection)
        connection.state.token = found.token
        content = await connection.body()
        body = parse_json(content) if content.strip() else {}
        is_from_executor = any(dialect.is_from_executor(body) for dialect in service.dialects)
        return (WORK_SCOPE if is_from_executor else self).authorize(found)
