"""Serves the hottest routes without FastAPI, whose own work costs more than theirs.

A request to such a route qualifies if it has none of the headers that the route declares, and only the required
parameters in its query. Then nothing needs validation but the body, which the route parses by hand: the request goes
straight to authentication and the route's function. All other requests, and all with an `Origin`, pass through FastAPI.

Measured side by side in one run of the calls of `agentq bench --only server`, as CPU time of the server for each
request: a custom route class inside FastAPI (`get_route_handler`, hot routes first) costs 18 to 22 % more for the calls
of runners, and 19 to 24 % more for submits (two runs on two busy cores, November 2026).
"""

from __future__ import annotations

import inspect
from typing import Any
from urllib.parse import parse_qsl

from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from agentq.server.auth.access_control import RequiredScope
from agentq.server.http.compression import COMPRESS_BYTES_MIN, CompressionMiddleware

ORIGIN_HEADER = b"origin"


class FastRoute(APIRoute):
    """A route whose function takes `request`, `caller`, texts from path and query, and parameters with defaults."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        allowed = [each.call for each in self.dependant.dependencies if isinstance(each.call, RequiredScope)]
        self.is_plain = len(allowed) == 1 and not self.dependant.body_params and _needs_no_validation(self)
        """Whether requests can bypass FastAPI."""
        if self.is_plain:
            self._required_scope = allowed[0]
            self._defaults = _list_defaults(self)
            self._required_parameters = _list_required_parameters(self)
            heads = (each.alias.lower().encode() for each in self.dependant.header_params)
            self._declared_headers = frozenset((ORIGIN_HEADER, *heads))

    def match_arguments(self, scope: Scope) -> dict[str, Any] | None:
        """The arguments for a request; None if it is not for this route or does not qualify."""
        path = self.path_regex.match(scope["path"]) if scope["method"] in (self.methods or ()) else None
        if path is None or any(name in self._declared_headers for name, _ in scope["headers"]):
            return None
        query = _parse_query(scope["query_string"], self._required_parameters)
        return None if query is None else {**self._defaults, **query, **path.groupdict()}

    async def answer(self, request: Request, given: dict[str, Any]) -> Response:
        """Authenticate, and call the function."""
        answer: Response = await self.endpoint(request=request, caller=await self._required_scope(request), **given)
        return answer


class FastPath:
    """Bypasses FastAPI for requests that qualify."""

    def __init__(self, app: FastAPI, framework: ASGIApp) -> None:
        self._app = app
        self._framework = framework
        self._routes = [route for route in app.routes if isinstance(route, FastRoute) and route.is_plain]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not scope.get("root_path"):
            for route in self._routes:
                given = route.match_arguments(scope)
                if given is not None:
                    scope["route"] = route
                    await self._respond(route, given, Request(scope, receive), send)
                    return
        await self._framework(scope, receive, send)

    async def _respond(self, route: FastRoute, given: dict[str, Any], request: Request, send: Send) -> None:
        try:
            answer = await route.answer(request, given)
        except Exception as error:  # noqa: BLE001 - answered by the app's handlers
            answer = await self._handle_error(request, error)
        compressed = answer if len(answer.body) < COMPRESS_BYTES_MIN else CompressionMiddleware(answer)
        await compressed(request.scope, request.receive, send)

    async def _handle_error(self, request: Request, error: Exception) -> Response:
        """The response of the app's handler for this error."""
        handlers = self._app.exception_handlers
        handler = next(handlers[kind] for kind in type(error).__mro__ if kind in handlers)
        answer = handler(request, error)
        response: Response = await answer if inspect.isawaitable(answer) else answer
        return response


def _needs_no_validation(route: APIRoute) -> bool:
    """Whether its path and its required query parameters are plain texts."""
    dependant = route.dependant
    texts = [each.field_info for each in dependant.path_params]
    other_parameters = (*dependant.query_params, *dependant.header_params, *dependant.cookie_params)
    needed = [each.field_info for each in other_parameters if each.field_info.is_required()]
    return all(each.annotation is str and not each.metadata for each in (*texts, *needed)) and len(needed) == len(
        _list_required_parameters(route)
    )


def _list_required_parameters(route: APIRoute) -> dict[str, str]:
    """The required query parameters: their names in the query, and in the function."""
    return {each.alias: each.name for each in route.dependant.query_params if each.field_info.is_required()}


def _parse_query(query: bytes, needed: dict[str, str]) -> dict[str, str] | None:
    """The values of a query with exactly these parameters, each once; None for any other query."""
    if not query and not needed:
        return {}
    pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True)
    found = {needed[name]: text for name, text in pairs if name in needed}
    return found if len(found) == len(needed) == len(pairs) else None


def _list_defaults(route: APIRoute) -> dict[str, Any]:
    parameters = inspect.signature(route.endpoint).parameters
    return {name: each.default for name, each in parameters.items() if each.default is not inspect.Parameter.empty}
