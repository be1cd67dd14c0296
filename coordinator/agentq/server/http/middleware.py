"""Middleware around all requests: id, log line, origin checks and limits.

1. Each request has an id: the client's own if valid, or a new one; the response carries it.
2. The Host header is checked: on loopback only loopback names are accepted, so that a web page cannot reach the server
   through a name of its own (DNS rebinding). A browser's request is accepted only from an allowed origin.
3. The size of a body, and of all bodies together, is limited, and so is its time. A body without a content type is
   JSON.
4. Each request is logged with its result; with tracing it is a span.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable
from random import getrandbits
from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agentq.coordinator import tracing
from agentq.coordinator.bounds import JSON_ITEMS_MAX
from agentq.coordinator.clock import monotonic_ns
from agentq.coordinator.config.server_settings import ServerSettings
from agentq.coordinator.storage.url import is_loopback
from agentq.server.http import problems
from agentq.server.http.disconnect import BODY_COMPLETE_KEY
from agentq.server.http.protocol import BODY_HEADERS

HOST_PATTERN = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<name>[^\[\]:/@\s]+))(?::\d{1,5})?")
REQUEST_ID_PATTERN = re.compile(r"[A-Za-z0-9._-]{1,64}")
LOOPBACK_NAMES = frozenset(("localhost", "127.0.0.1", "::1"))
SECURITY_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"frame-ancestors 'none'"),
)
"""Headers of each response that does not set them itself."""
REQUEST_ID_HEADER = b"x-request-id"
CROSS_SITE = (b"cross-site", b"same-site")
LINKABLE_PATHS = ("/docs", "/health")
"""Paths that pages of other origins may link to."""
FOREIGN_ORIGIN = "Pages of other origins may not use this server; the setting `cors_origins` names those that may."
QUIET_PATHS = ("/health", "/ready", "/metrics")
"""Paths whose successes are logged at `debug` level only."""
if TYPE_CHECKING:
    from opentelemetry.trace import Span

GENERIC_CONTENT_TYPES = (b"", b"application/x-www-form-urlencoded", b"text/plain")
"""Content types without meaning: `curl -d` calls every body a form, and browsers call it text."""
LOGGED_PATH_LENGTH = 500
SMALL_BODY_BYTES = 64 << 10
"""A body of up to this size is always accepted, so that large bodies do not block small ones."""
CLOSE_HEADER = {"connection": "close"}
"""Closes the connection after a refusal, so that the rest of the body is not read."""

log = logging.getLogger("agentq.server")


class RequestMiddleware:
    """The outermost layer of the app."""

    def __init__(
        self, app: ASGIApp, *, settings: ServerSettings, observe: Callable[[str, str, int, float], None]
    ) -> None:
        self._app = app
        self._settings = settings
        self._observe = observe
        """Called with the route, method, status and seconds of each request."""
        self._names = LOOPBACK_NAMES | set(map(str.lower, settings.hosts))
        if is_loopback(settings.host):
            self._names |= {settings.host.strip("[]").lower()}
        self._any_name = "*" in settings.hosts or (not is_loopback(settings.host) and not settings.hosts)
        self._body_budget = _BodyBudget(max(settings.bodies_bytes, settings.body_bytes))
        self._origins = frozenset(origin.rstrip("/") for origin in settings.cors_origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        has_body = any(name in headers for name in BODY_HEADERS)
        if has_body:
            _default_to_json(scope, headers)
        request_id = _read_request_id(headers)
        scope.setdefault("state", {})["request_id"] = request_id
        exchange = _Exchange(scope, receive, send, request_id, self._settings, self._body_budget, has_body=has_body)
        if scope["type"] == "http" and scope["path"] not in QUIET_PATHS:
            exchange.start_span(headers)
        refused = self._find_refusal(scope, headers, request_id)
        app: Callable[[Scope, Receive, Send], Awaitable[None]] = self._app if refused is None else refused
        try:
            await app(scope, exchange.receive, exchange.send)
        except Exception:
            if not exchange.status:
                raise  # else it was answered, and written down, by `problems`
        finally:
            exchange.release()
            self._record(exchange)

    def _find_refusal(self, scope: Scope, headers: dict[bytes, bytes], request_id: str) -> Response | None:
        """The answer to a request that is refused before routing."""
        if len(headers) < len(scope["headers"]):
            names = [name for name, _ in scope["headers"]]
            if names.count(b"host") > 1:
                return _build_refusal(421, "A request has one Host header.", request_id)
            if names.count(b"origin") > 1:
                return _build_refusal(403, "A request has at most one Origin header.", request_id)
        host = headers.get(b"host", b"").decode("latin-1")
        if not self._any_name and _parse_host(host) not in self._names:
            detail = "This server does not accept that host name; the setting `hosts` adds others."
            return _build_refusal(421, detail, request_id)
        origin = headers.get(b"origin", b"").decode("latin-1").rstrip("/")
        if origin and origin not in self._origins and origin.partition("://")[2] != host:
            return _build_refusal(403, FOREIGN_ORIGIN, request_id)
        # For embedded resources and links, browsers send no Origin header.
        if not origin and headers.get(b"sec-fetch-site") in CROSS_SITE and not _is_safe_link(scope, headers):
            return _build_refusal(403, FOREIGN_ORIGIN, request_id)
        length = headers.get(b"content-length", b"")
        if length.isdigit() and int(length) > self._settings.body_bytes:
            detail = f"The body has {int(length)} bytes; {self._settings.body_bytes} is the most."
            return _build_refusal(413, detail, request_id)
        return None

    def _record(self, exchange: _Exchange) -> None:
        """Log and count a request."""
        scope, seconds = exchange.scope, (monotonic_ns() - exchange.began_ns) / 1e9
        route = scope.get("route")
        path = getattr(route, "path", "") or ""
        method = scope.get("method", "WS")
        status = exchange.status or (0 if scope["type"] == "http" else 101)
        self._observe(path, method, status, seconds)
        if exchange.span is not None:
            tracing.end_request_span(exchange.span, method, path, status)
        level = logging.DEBUG if path in QUIET_PATHS and status < 400 else logging.INFO
        if log.isEnabledFor(level):
            fields = {
                "request_id": exchange.request_id,
                "method": method,
                "path": scope["path"][:LOGGED_PATH_LENGTH],
                "status": status,
                "ms": round(seconds * 1000, 1),
                "token": scope["state"].get("token"),
                "client": (scope.get("client") or ("",))[0],
            }
            made = scope["state"].get("made") or exchange.location
            if made:
                fields["made"] = made
            log.log(level, "request", extra={"fields": fields})


class _BodyBudget:
    """The budget for large bodies under way: each is in memory several times until it is answered."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._taken_bytes = 0

    def take(self, number: int) -> None:
        """Reserve bytes, or refuse the request."""
        if self._taken_bytes + number > self._bytes_max:
            detail = f"The bodies of the requests under way have {self._bytes_max} bytes, which is the most; try again."
            raise HTTPException(503, detail, CLOSE_HEADER | {"retry-after": str(problems.RETRY_AFTER_S)})
        self._taken_bytes += number

    def give_back(self, number: int) -> None:
        self._taken_bytes -= number


class JsonItemCounter:
    """Counts the items of JSON that arrives in pieces, without parsing it. A member of an object counts as three items,
    since it takes longer to parse."""

    def __init__(self) -> None:
        self._number = 0
        self._is_in_text = False
        self._rest = b""

    def add(self, piece: bytes) -> int:
        """Add a piece; returns the number of items so far."""
        piece = self._rest + piece
        complete = piece.rstrip(b"\\")  # the escaped character is in the next piece
        self._rest = b"\\" * ((len(piece) - len(complete)) % 2)
        parts = complete.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        self._number += sum(part.count(b",") + 2 * part.count(b":") for part in parts[self._is_in_text :: 2])
        self._is_in_text ^= len(parts) % 2 == 0
        return self._number


class _Exchange:
    """One request and its response."""

    def __init__(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        request_id: str,
        settings: ServerSettings,
        body_budget: _BodyBudget,
        *,
        has_body: bool,
    ) -> None:
        self.scope = scope
        self.request_id = request_id
        self.status = 0
        self.location = ""
        """The Location header of the response."""
        self.began_ns = monotonic_ns()
        self._receive = receive
        self._send = send
        self._body_bytes_max = settings.body_bytes
        self._body_timeout_ns = settings.body_timeout_ms * 1_000_000
        self._received_bytes = 0
        self._body_budget = body_budget
        self._items = JsonItemCounter()
        self._budgeted_bytes = 0
        """The bytes reserved in the budget."""
        self._is_body_complete = scope["type"] != "http" or not has_body
        self.span: Span | None = None

    def start_span(self, headers: dict[bytes, bytes]) -> None:
        """Start a trace span, if tracing is on; runs submitted by the request become its children."""
        traceparent = headers.get(b"traceparent", b"").decode("latin-1")
        self.span = tracing.start_request_span(
            self.scope["method"], self.scope["path"][:LOGGED_PATH_LENGTH], traceparent
        )
        if self.span is not None:
            self.scope["state"]["traceparent"] = tracing.format_traceparent(self.span.get_span_context())

    async def receive(self) -> Message:
        """The next piece of the body, within its limits; after the body, the disconnect."""
        if self._is_body_complete:
            return await self._receive()
        message = await (self._receive() if BODY_COMPLETE_KEY in self.scope["state"] else self._receive_in_time())
        self._received_bytes += len(message.get("body", b""))
        if self._received_bytes > self._body_bytes_max:
            raise HTTPException(
                413, f"The body is larger than {self._body_bytes_max} bytes, which is the most.", CLOSE_HEADER
            )
        if self._received_bytes > SMALL_BODY_BYTES:
            self._body_budget.take(self._received_bytes - self._budgeted_bytes)
            self._budgeted_bytes = self._received_bytes
        if self._items.add(message.get("body", b"")) > JSON_ITEMS_MAX:
            counted = "a member of an object counting as three"
            raise HTTPException(
                413, f"The body has more than {JSON_ITEMS_MAX} items, {counted}; send less at once.", CLOSE_HEADER
            )
        self._is_body_complete = not message.get("more_body", False)
        return message

    def release(self) -> None:
        """Return the reserved bytes."""
        self._body_budget.give_back(self._budgeted_bytes)
        self._budgeted_bytes = 0

    async def _receive_in_time(self) -> Message:
        left = (self.began_ns + self._body_timeout_ns - monotonic_ns()) / 1e9
        try:
            async with asyncio.timeout(max(left, 0)):
                return await self._receive()
        except TimeoutError:
            raise HTTPException(408, "The body took too long to come.", CLOSE_HEADER) from None

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = message.setdefault("headers", [])
            names = {name for name, _ in headers}
            self.location = next((value.decode("latin-1") for name, value in headers if name == b"location"), "")
            message["headers"] = [
                *headers, *((name, value) for name, value in SECURITY_HEADERS if name not in names),
                (REQUEST_ID_HEADER, self.request_id.encode())
            ]  # fmt: skip
        await self._send(message)


def _build_refusal(status: int, detail: str, request_id: str) -> Response:
    kind = {413: "too-large", 421: "unknown-host", 403: "origin-not-allowed"}[status]
    return problems.problem_response(status, detail, request_id=request_id, kind=kind, headers=CLOSE_HEADER)


def _default_to_json(scope: Scope, headers: dict[bytes, bytes]) -> None:
    """Treat a body without a meaningful content type as JSON."""
    if headers.get(b"content-type", b"").partition(b";")[0].strip().lower() in GENERIC_CONTENT_TYPES:
        others = [(name, value) for name, value in scope["headers"] if name != b"content-type"]
        scope["headers"] = [*others, (b"content-type", b"application/json")]


def _read_request_id(headers: dict[bytes, bytes]) -> str:
    own = headers.get(REQUEST_ID_HEADER, b"").decode("latin-1")
    return own if REQUEST_ID_PATTERN.fullmatch(own) else f"req_{getrandbits(60):015x}"


def _is_safe_link(scope: Scope, headers: dict[bytes, bytes]) -> bool:
    """Whether a browser follows a link to a path where requests change nothing."""
    is_link = headers.get(b"sec-fetch-mode") == b"navigate" and scope.get("method") in ("GET", "HEAD")
    return is_link and scope["path"] in LINKABLE_PATHS


def _parse_host(host: str) -> str:
    """The name in a Host header, without its port; empty if the header is invalid."""
    found = HOST_PATTERN.fullmatch(host)
    return (found["six"] or found["name"] or "").lower() if found is not None else ""
