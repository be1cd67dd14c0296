"""Routes that are asked thousands of times a second, for which the framework's own care costs more than their work.

A request that brings no query, and none of the heads that the route declares, has nothing to be read but its body,
which such a route reads by hand: it goes straight to the door and to the function. Any other goes the whole way.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response

from agentq.coordinator.server.access import Allowed

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class Quick(APIRoute):
    """A route whose function takes `request`, `caller`, texts of its path, and beside them what has a default."""

    def get_route_handler(self) -> Handler:
        """What handles a request."""
        whole: Handler = super().get_route_handler()
        allowed = [each.call for each in self.dependant.dependencies if isinstance(each.call, Allowed)]
        if len(allowed) != 1 or self.dependant.body_params or not _is_plain(self):
            return whole
        return _quick(whole, self.endpoint, allowed[0], frozenset(_heads(self)), _defaults(self))


def _quick(
    whole: Handler, endpoint: Callable[..., Any], allowed: Allowed, heads: frozenset[bytes], defaults: dict[str, Any]
) -> Handler:
    async def handle(request: Request) -> Response:
        scope = request.scope
        if scope["query_string"] or any(name in heads for name, _ in scope["headers"]):
            return await whole(request)
        given = {**defaults, **scope["path_params"]}
        answer: Response = await endpoint(request=request, caller=await allowed(request), **given)
        return answer

    return handle


def _is_plain(route: APIRoute) -> bool:
    """Whether there is nothing to check in its path, and nothing that has to come beside it."""
    dependant = route.dependant
    texts = (each.field_info for each in dependant.path_params)
    beside = (*dependant.query_params, *dependant.header_params, *dependant.cookie_params)
    return all(each.annotation is str and not each.metadata for each in texts) and not any(
        each.field_info.is_required() for each in beside
    )


def _heads(route: APIRoute) -> list[bytes]:
    """The heads that it declares, as they come."""
    return [each.alias.lower().encode() for each in route.dependant.header_params]


def _defaults(route: APIRoute) -> dict[str, Any]:
    parameters = inspect.signature(route.endpoint).parameters
    return {name: each.default for name, each in parameters.items() if each.default is not inspect.Parameter.empty}
