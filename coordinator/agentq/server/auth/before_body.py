"""Authenticates requests with a body before the body is read.

FastAPI reads the body first, so that any client could make the server hold a large one.
"""

from __future__ import annotations

from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from agentq.server.auth.access_control import RequiredScope


class AuthBeforeBody:
    """Wraps one route."""

    def __init__(self, app: ASGIApp, allowed: RequiredScope) -> None:
        self._app = app
        self._allowed = allowed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._allowed.authenticate_early(Request(scope))
        await self._app(scope, receive, send)


def add_auth_before_body(route: APIRoute, allowed: RequiredScope | None) -> None:
    """Wrap a route that has a body; others authenticate before they read anything."""
    if allowed is not None and route.body_field is not None:
        route.app = AuthBeforeBody(route.app, allowed)
