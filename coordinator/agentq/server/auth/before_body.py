"""The door of routes with a body: who asks is looked at before the body is read.

The framework reads the body first and asks who sent it then, so that anybody could have the server keep a large one.
"""

from __future__ import annotations

from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from agentq.server.auth.access_control import RequiredScope


class AuthBeforeBody:
    """In front of one route."""

    def __init__(self, app: ASGIApp, allowed: RequiredScope) -> None:
        self._app = app
        self._allowed = allowed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._allowed.authenticate_early(Request(scope))
        await self._app(scope, receive, send)


def add_auth_before_body(route: APIRoute, allowed: RequiredScope | None) -> None:
    """Give a route that has a body a door; others look at who asks before they read anything."""
    if allowed is not None and route.body_field is not None:
        route.app = AuthBeforeBody(route.app, allowed)
