"""Error responses: one JSON document for all of them, built in one place.

`detail` always holds one sentence about the error, because clients of other systems read only that. The status tells
what the caller can do. An unexpected error shows nothing but the request id under which the log has the details.
"""

from __future__ import annotations

import logging
import re
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Match

from agentq.coordinator import errors
from agentq.coordinator.model.field_types import (
    describe_error,
    error_message,
    field_models,
    find_model,
    format_error,
    format_location,
    list_errors,
)

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER_S = 2
"""The Retry-After of an outage of the store."""
FAULTS_MAX = 20
"""The most wrong fields that are listed."""
BODILESS_STATUSES = (204, 304)
INTERNAL_ERROR = "Internal error; the server logs the details under the id of this request."

log = logging.getLogger("agentq.server")

STATUS_BY_ERROR: dict[type[errors.AgentqError], int] = {
    errors.Invalid: 422,
    errors.NotFound: 404,
    errors.Damaged: 409,
    errors.NotAllowed: 403,
    errors.Undurable: 504,
    errors.WaitTimedOut: 504,
    errors.Unreachable: 503,
    errors.TryLater: 503,
    errors.NotNow: 409,
    errors.Incompatible: 503,
    errors.Refused: 409,
}
"""The status of each class of errors; a subclass has that of its nearest base class."""


class FieldProblem(BaseModel):
    """One wrong field of the input."""

    model_config = ConfigDict(extra="allow")

    at: str
    """The path in the body, or the name of a parameter."""
    message: str


class Problem(BaseModel):
    """The error document (RFC 9457)."""

    model_config = ConfigDict(extra="allow")

    type: str
    title: str
    status: int
    detail: JsonValue
    """One sentence; in the dialects of other systems, the value that these expect."""
    errors: list[FieldProblem] | None = None
    request_id: str | None = None


class Denied(errors.NotAllowed):
    """The request needs a token that allows it; `status` distinguishes 401 from 403."""

    def __init__(self, message: str, *, status: int = 403) -> None:
        super().__init__(message)
        self.status = status


class TooMany(errors.TryLater):
    """The token has reached its rate limit."""

    def __init__(
        self,
        wait_ms: int,
        message: str = "This token has reached its rate limit; wait as long as Retry-After says.",
    ) -> None:
        super().__init__(message)
        self.wait_ms = wait_ms


def choose_status(error: errors.AgentqError) -> int:
    """The status of an error."""
    return next((STATUS_BY_ERROR[kind] for kind in type(error).__mro__ if kind in STATUS_BY_ERROR), 500)


def build_problem(
    status: int, detail: JsonValue, *, request_id: str | None = None, kind: str = "", **more: Any
) -> dict[str, Any]:
    """The error document."""
    title = HTTPStatus(status).phrase
    name = f"urn:agentq:problem:{kind}" if kind else "about:blank"
    fields = {"type": name, "title": title, "status": status, "detail": detail, **more, "request_id": request_id}
    return {name: value for name, value in fields.items() if value is not None}


def problem_response(
    status: int,
    detail: JsonValue,
    *,
    request_id: str | None = None,
    kind: str = "",
    headers: dict[str, str] | None = None,
    **more: Any,
) -> Response:
    """The error document as a response."""
    if status in BODILESS_STATUSES:
        return Response(status_code=status, headers=headers)
    body = build_problem(status, detail, request_id=request_id, kind=kind, **more)
    return JSONResponse(body, status, headers, media_type=MEDIA_TYPE)


def error_response(error: errors.AgentqError, request_id: str | None = None, **more: Any) -> Response:
    """The response for an error of agentq."""
    error = _hide_store_address(error, request_id)
    status, headers = choose_status(error), dict[str, str]()
    if isinstance(error, Denied):
        status = error.status
        headers = {"WWW-Authenticate": "Bearer"} if status == 401 else {}
    elif isinstance(error, TooMany):
        status, headers = 429, {"Retry-After": str(max(1, -(-error.wait_ms // 1000)))}
    elif isinstance(error, errors.TryLater) or status == 503:
        headers = {"Retry-After": str(RETRY_AFTER_S)}
    if isinstance(error.__cause__, ValidationError):
        cause = error.__cause__
        more["errors"] = format_faults(list_errors(cause), find_model(cause.title))
    return problem_response(
        status, str(error), request_id=request_id, kind=derive_problem_kind(error), headers=headers, **more
    )


def _hide_store_address(error: errors.AgentqError, request_id: str | None) -> errors.AgentqError:
    """An error of the store without its address and message, which are only logged."""
    if not isinstance(error, errors.Unreachable) and not str(error).startswith("The server "):
        return error
    if isinstance(error, errors.TryLater):
        return errors.TryLater("The store takes nothing at the moment; try again.")
    if isinstance(error, errors.Unreachable):
        return errors.Unreachable("The store cannot be reached at the moment; try again.")
    log.error("the store refuses this server", extra={"fields": {"error": str(error), "request_id": request_id}})
    if isinstance(error, errors.NotAllowed):
        return errors.Unreachable("The store refuses this server at the moment; the server logs the details.")
    return errors.AgentqError(INTERNAL_ERROR)


def format_faults(found: Any, model: type[BaseModel] | None = None) -> list[dict[str, str]]:
    """The wrong fields with their paths. Values are not repeated, since they may be secret."""
    return [
        {"at": format_location(each["loc"]), "message": error_message(each, model)} for each in list(found)[:FAULTS_MAX]
    ]


def wrap_validation_error(error: ValidationError) -> errors.Invalid:
    """An error of agentq for input that a model refuses."""
    wrong = errors.Invalid(describe_error(error))
    wrong.__cause__ = error
    return wrong


def install_handlers(app: FastAPI) -> None:
    """Answer all exceptions of the app with an error document."""
    app.add_exception_handler(errors.AgentqError, _handle_agentq_error)
    app.add_exception_handler(RequestValidationError, _handle_invalid_request)
    app.add_exception_handler(HTTPException, _handle_http_exception)
    app.add_exception_handler(ClientDisconnect, _handle_disconnect)
    app.add_exception_handler(Exception, _handle_unexpected_error)


async def _handle_agentq_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, errors.AgentqError)
    return error_response(error, get_request_id(request))


async def _handle_invalid_request(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    found = list(error.errors())
    body = getattr(request.scope.get("route"), "body_field", None)
    model = None if body is None else next(field_models(body.field_info.annotation), None)
    faults = format_faults(({**each, "loc": _locate_fault(each)} for each in found), model)
    first = faults[0] if faults else {"at": "", "message": "the request is not valid"}
    detail = format_error(first["at"], first["message"], len(found))
    return problem_response(422, detail, request_id=get_request_id(request), kind="invalid", errors=faults)


def _locate_fault(fault: Any) -> tuple[int | str, ...]:
    """The path in the body, or the parameter; only the body, if all of it is wrong."""
    location: tuple[int | str, ...] = fault["loc"]
    return location[:1] if len(location) == 1 or fault["type"] == "json_invalid" else location[1:]


async def _handle_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    detail: JsonValue = error.detail
    headers = dict(error.headers or {})
    if error.status_code == 404 and detail == HTTPStatus.NOT_FOUND.phrase:
        detail = _describe_missing_path(request)
    elif error.status_code == 405:
        methods = _find_methods(request, request.url.path)
        detail = f"{request.url.path[:200]} does not take {request.method[:20]}; it takes {' and '.join(methods)}."
        headers["Allow"] = ", ".join(methods)
    return problem_response(error.status_code, detail, request_id=get_request_id(request), headers=headers)


def _describe_missing_path(request: Request) -> str:
    path = request.url.path
    bare = path.rstrip("/")
    if bare != path and _find_methods(request, bare):
        return f"There is nothing at {path[:200]}; it is {bare[:200]}, without a slash at its end."
    return f"There is nothing at {path[:200]}; /docs shows what there is."


def _find_methods(request: Request, path: str) -> list[str]:
    """The methods of a path; empty if there is no such path."""
    scope = {**request.scope, "path": path}
    found = (route for route in request.app.routes if route.matches(scope)[0] is not Match.NONE)
    return sorted({method for route in found for method in getattr(route, "methods", None) or ()})


async def _handle_disconnect(request: Request, error: Exception) -> Response:  # noqa: ARG001 - as it is called
    """The client has disconnected while it sent its body; no response reaches it."""
    return Response(status_code=499)


async def _handle_unexpected_error(request: Request, error: Exception) -> Response:
    log.error("a request failed", exc_info=error, extra={"fields": {"request_id": get_request_id(request)}})
    return problem_response(500, INTERNAL_ERROR, request_id=get_request_id(request), kind="internal")


def get_request_id(request: Request) -> str | None:
    """The id of a request."""
    found: str | None = request.scope.get("state", {}).get("request_id")
    return found


def derive_problem_kind(error: errors.AgentqError) -> str:
    """The class name of an error in kebab case, such as `wrong-state`."""
    return re.sub("(?<!^)(?=[A-Z])", "-", type(error).__name__).lower()
