"""Routes that are asked thousands of times a second, for which the framework's own care costs more than their work.

A request that brings none of the heads that such a route declares, and in its query nothing but the texts that it
cannot do without, has nothing else to be read but its body, which the route reads by hand: past the framework, it goes
straight to the door and to the function. Any other goes the whole way, and so does whatever a browser's page asks.
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
    """A route whose function takes `request`, `caller`, texts of its path and query, and beside them what has a
    default."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        allowed = [each.call for each in self.dependant.dependencies if isinstance(each.call, RequiredScope)]
        self.is_plain = len(allowed) == 1 and not self.dependant.body_params and _needs_no_validation(self)
        """Whether it can be asked past the framework."""
        if self.is_plain:
            self._required_scope = allowed[0]
            self._defaults = _list_defaults(self)
            self._required_parameters = _list_required_parameters(self)
            heads = (each.alias.lower().encode() for each in self.dependant.header_params)
            self._declared_headers = frozenset((ORIGIN_HEADER, *heads))

    def match_arguments(self, scope: Scope) -> dict[str, Any] | None:
        """What its function is called with, if the request is its, and brings nothing else."""
        path = self.path_regex.match(scope["path"]) if scope["method"] in (self.methods or ()) else None
        if path is None or any(name in self._declared_headers for name, _ in scope["headers"]):
            return None
        query = _parse_query(scope["query_string"], self._required_parameters)
        return None if query is None else {**self._defaults, **query, **path.groupdict()}

    async def answer(self, request: Request, given: dict[str, Any]) -> Response:
        """What its function answers whoever may ask."""
        answer: Response = await self.endpoint(request=request, caller=await self._required_scope(request), **given)
        return answer


class FastPath:
    """The way past the framework, in front of it."""

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
        """What the app answers where this has gone wrong."""
        handlers = self._app.exception_handlers
        handler = next(handlers[kind] for kind in type(error).__mro__ if kind in handlers)
        answer = handler(request, error)
        response: Response = await answer if inspect.isawaitable(answer) else answer
        return response


def _needs_no_validation(route: APIRoute) -> bool:
    """Whether there is nothing to check in its path, nor in what has to come beside it, which is in its query."""
    dependant = route.dependant
    texts = [each.field_info for each in dependant.path_params]
    other_parameters = (*dependant.query_params, *dependant.header_params, *dependant.cookie_params)
    needed = [each.field_info for each in other_parameters if each.field_info.is_required()]
    return all(each.annotation is str and not each.metadata for each in (*texts, *needed)) and len(needed) == len(
        _list_required_parameters(route)
    )


def _list_required_parameters(route: APIRoute) -> dict[str, str]:
    """What has to stand in its query: the name there, and that of the parameter."""
    return {each.alias: each.name for each in route.dependant.query_params if each.field_info.is_required()}


def _parse_query(query: bytes, needed: dict[str, str]) -> dict[str, str] | None:
    """What stands in a query that is of these and no others, each once; None if it is another."""
    if not query and not needed:
        return {}
    pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True)
    found = {needed[name]: text for name, text in pairs if name in needed}
    return found if len(found) == len(needed) == len(pairs) else None


def _list_defaults(route: APIRoute) -> dict[str, Any]:
    parameters = inspect.signature(route.endpoint).parameters
    return {name: each.default for name, each in parameters.items() if each.default is not inspect.Parameter.empty}
