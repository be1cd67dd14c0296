"""Refuses unknown query parameters: ignoring a misspelt filter would return the whole list."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from hashlib import sha256
from typing import Annotated

from fastapi import Depends, Header, Request
from fastapi.routing import APIRoute, APIWebSocketRoute
from pydantic import BeforeValidator

from agentq.coordinator.errors import Invalid
from agentq.server.service import get_service

SHOWN_NAME_LENGTH = 40
OPERATION_LENGTH = 32
IdempotencyKeyHeader = Annotated[
    str | None,
    Header(alias="idempotency-key", max_length=255, description="Sent again with the same key, it is done once."),
]


async def _check_parameters(request: Request) -> None:
    if request.scope["query_string"]:
        route = request.scope["route"]
        known = [field.alias for field in route.dependant.query_params]
        for dialect in get_service(request).dialects:
            known += [each["name"] for each in dialect.parameters.get((request.method, route.path), ())]
        check_parameter_names(request.query_params, known)


ONLY_KNOWN_PARAMETERS = Depends(_check_parameters)
"""For routers whose routes declare all of their parameters."""


def order_auth_first(route: APIRoute | APIWebSocketRoute) -> None:
    """Make authentication the first dependency of a route, before its parameters are checked."""
    route.dependant.dependencies.sort(key=lambda each: each.call is _check_parameters)


def derive_operation(token: str | None, key: str | None, body: bytes = b"") -> str | None:
    """The id of an operation by which the store knows a request that is sent again: of this token, key and body."""
    if key is None:
        return None
    return sha256(f"{token or ''} {key} ".encode() + body).hexdigest()[:OPERATION_LENGTH]


def _split_commas(given: object) -> object:
    if not isinstance(given, list):
        return given
    return [word for each in given for word in (each.split(",") if isinstance(each, str) else [each])]


COMMA_SEPARATED = BeforeValidator(_split_commas)
"""For list parameters: given several times, or once with commas."""


def check_parameter_names(names_given: Iterable[str], known: Iterable[str]) -> None:
    """Refuse names that are not known."""
    names = list(known)
    for name in names_given:
        if name not in names:
            there_are = f"there are {', '.join(names)}" if names else "there are none"
            closest = get_close_matches(name, names, n=1)
            hint = f" Did you mean {closest[0]}?" if closest else ""
            raise Invalid(f"There is no parameter {name[:SHOWN_NAME_LENGTH]!r} here; {there_are}.{hint}")
