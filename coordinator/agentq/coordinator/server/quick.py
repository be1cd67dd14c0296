"""Routes that are asked thousands of times a second, for which the framework's own care costs more than their work.

A request that brings none of the heads that the route declares, and in its query nothing but the texts that it cannot
do without, has nothing else to be read but its body, which such a route reads by hand: it goes straight to the door and
to the function. Any other goes the whole way.
"""

from __future__ import annotations

import inspect
from typing import Any
from urllib.parse import parse_qsl

from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from agentq.coordinator.server.access import Allowed


class Quick(APIRoute):
    """A route whose function takes `request`, `caller`, texts of its path and query, and beside them what has a
    default."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        allowed = [each.call for each in self.dependant.dependencies if isinstance(each.call, Allowed)]
        if len(allowed) == 1 and not self.dependant.body_params and _is_plain(self):
            self.app = _quick(self.app, self, allowed[0])


def _quick(whole: ASGIApp, route: APIRoute, allowed: Allowed) -> ASGIApp:
    endpoint, defaults, needed = route.endpoint, _defaults(route), _needed(route)
    heads = frozenset(each.alias.lower().encode() for each in route.dependant.header_params)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        query = _texts(scope["query_string"], needed)
        if query is None or any(name in heads for name, _ in scope["headers"]):
            await whole(scope, receive, send)
            return
        request = Request(scope, receive, send)
        given = {**defaults, **query, **scope["path_params"]}
        answer: Response = await endpoint(request=request, caller=await allowed(request), **given)
        await answer(scope, receive, send)

    return app


def _is_plain(route: APIRoute) -> bool:
    """Whether there is nothing to check in its path, nor in what has to come beside it, which is in its query."""
    dependant = route.dependant
    texts = [each.field_info for each in dependant.path_params]
    beside = (*dependant.query_params, *dependant.header_params, *dependant.cookie_params)
    needed = [each.field_info for each in beside if each.field_info.is_required()]
    return all(each.annotation is str and not each.metadata for each in (*texts, *needed)) and len(needed) == len(
        _needed(route)
    )


def _needed(route: APIRoute) -> dict[str, str]:
    """What has to stand in its query: the name there, and that of the parameter."""
    return {each.alias: each.name for each in route.dependant.query_params if each.field_info.is_required()}


def _texts(query: bytes, needed: dict[str, str]) -> dict[str, str] | None:
    """What stands in a query that is of these and no others, each once; None if it is another."""
    if not query and not needed:
        return {}
    pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True)
    found = {needed[name]: text for name, text in pairs if name in needed}
    return found if len(found) == len(needed) == len(pairs) else None


def _defaults(route: APIRoute) -> dict[str, Any]:
    parameters = inspect.signature(route.endpoint).parameters
    return {name: each.default for name, each in parameters.items() if each.default is not inspect.Parameter.empty}
