"""What is done to every request before and after the routes: its id, its line in the log, its limits.

1. It has an id: the client's own, if that is one, or a new one; the answer carries it.
2. By what name it was called: on loopback only by one that is of loopback, so that no page in a browser reaches it
   through a name of its own (DNS rebinding); and a browser's request only from an origin that may.
3. Its body is not larger than it may be, and neither are those of all requests together; it does not take longer to
   come, and is JSON if it is not said what it is.
4. What it was, and how it ended, is written down; with traces, it is a span.
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
"""What every answer carries that does not say otherwise."""
REQUEST_ID_HEADER = b"x-request-id"
CROSS_SITE = (b"cross-site", b"same-site")
LINKABLE_PATHS = ("/docs", "/health")
"""What pages of other origins may link to."""
FOREIGN_ORIGIN = "Pages of other origins may not use this server; the setting `cors_origins` names those that may."
QUIET_PATHS = ("/health", "/ready", "/metrics")
"""Paths of which every success is written down only in the `debug` log."""
if TYPE_CHECKING:
    from opentelemetry.trace import Span

GENERIC_CONTENT_TYPES = (b"", b"application/x-www-form-urlencoded", b"text/plain")
"""Content types that tell nothing: `curl -d` calls whatever it sends a form, and browsers call it text."""
LOGGED_PATH_LENGTH = 500
SMALL_BODY_BYTES = 64 << 10
"""A body of up to this size has room among the others in any case, so that large ones do not keep it out."""
CLOSE_HEADER = {"connection": "close"}
"""What is left of a body that is not wanted is not read."""

log = logging.getLogger("agentq.server")


class RequestMiddleware:
    """The outermost part of the app."""

    def __init__(
        self, app: ASGIApp, *, settings: ServerSettings, observe: Callable[[str, str, int, float], None]
    ) -> None:
        self._app = app
        self._settings = settings
        self._observe = observe
        """Told the route, method, status and seconds of each request."""
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
        """The answer to a request that is not let in at all."""
        if len(headers) < len(scope["headers"]):
            names = [name for name, _ in scope["headers"]]
            if names.count(b"host") > 1:
                return _build_refusal(421, "A request has one Host header.", request_id)
            if names.count(b"origin") > 1:
                return _build_refusal(403, "A request has one Origin header at the most.", request_id)
        host = headers.get(b"host", b"").decode("latin-1")
        if not self._any_name and _parse_host(host) not in self._names:
            detail = "This server is not called by that name; the setting `hosts` tells it others."
            return _build_refusal(421, detail, request_id)
        origin = headers.get(b"origin", b"").decode("latin-1").rstrip("/")
        if origin and origin not in self._origins and origin.partition("://")[2] != host:
            return _build_refusal(403, FOREIGN_ORIGIN, request_id)
        # Of what a page merely embeds, and of a link, a browser does not say the origin.
        if not origin and headers.get(b"sec-fetch-site") in CROSS_SITE and not _is_safe_link(scope, headers):
            return _build_refusal(403, FOREIGN_ORIGIN, request_id)
        length = headers.get(b"content-length", b"")
        if length.isdigit() and int(length) > self._settings.body_bytes:
            detail = f"The body has {int(length)} bytes; {self._settings.body_bytes} is the most."
            return _build_refusal(413, detail, request_id)
        return None

    def _record(self, exchange: _Exchange) -> None:
        """Write down what it was."""
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
    """The large bodies of requests that are under way: each is in memory several times until its answer is made."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._taken_bytes = 0

    def take(self, number: int) -> None:
        """Take room for so many bytes more, or refuse the request."""
        if self._taken_bytes + number > self._bytes_max:
            detail = f"The bodies of the requests under way have {self._bytes_max} bytes, which is the most; try again."
            raise HTTPException(503, detail, CLOSE_HEADER | {"retry-after": str(problems.RETRY_AFTER_S)})
        self._taken_bytes += number

    def give_back(self, number: int) -> None:
        self._taken_bytes -= number


class JsonItemCounter:
    """Counts the items of lists and members of objects in JSON that comes in pieces, by what is outside of its texts. A
    member, which takes longer to read, counts as three items."""

    def __init__(self) -> None:
        self._number = 0
        self._is_in_text = False
        self._rest = b""

    def add(self, piece: bytes) -> int:
        """How many there are with this piece."""
        piece = self._rest + piece
        complete = piece.rstrip(b"\\")  # what it escapes is in the next one
        self._rest = b"\\" * ((len(piece) - len(complete)) % 2)
        parts = complete.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        self._number += sum(part.count(b",") + 2 * part.count(b":") for part in parts[self._is_in_text :: 2])
        self._is_in_text ^= len(parts) % 2 == 0
        return self._number


class _Exchange:
    """One request and its answer, as they pass."""

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
        """Where what it has made is."""
        self.began_ns = monotonic_ns()
        self._receive = receive
        self._send = send
        self._body_bytes_max = settings.body_bytes
        self._body_timeout_ns = settings.body_timeout_ms * 1_000_000
        self._received_bytes = 0
        self._body_budget = body_budget
        self._items = JsonItemCounter()
        self._budgeted_bytes = 0
        """What of its body it has taken room for."""
        self._is_body_complete = scope["type"] != "http" or not has_body
        self.span: Span | None = None

    def start_span(self, headers: dict[bytes, bytes]) -> None:
        """Have a span of it, if traces go anywhere; what is submitted by it is submitted within."""
        traceparent = headers.get(b"traceparent", b"").decode("latin-1")
        self.span = tracing.start_request_span(
            self.scope["method"], self.scope["path"][:LOGGED_PATH_LENGTH], traceparent
        )
        if self.span is not None:
            self.scope["state"]["traceparent"] = tracing.format_traceparent(self.span.get_span_context())

    async def receive(self) -> Message:
        """The next piece of the body, if it comes in time; afterwards, that the client is gone, whenever it is."""
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
        """It is answered, or given up: others have its room."""
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
    kind = {413: "too-large", 421: "unknown-host", 403: "foreign-origin"}[status]
    return problems.problem_response(status, detail, request_id=request_id, kind=kind, headers=CLOSE_HEADER)


def _default_to_json(scope: Scope, headers: dict[bytes, bytes]) -> None:
    """A body of which nothing is said is JSON, as nearly all are here."""
    if headers.get(b"content-type", b"").partition(b";")[0].strip().lower() in GENERIC_CONTENT_TYPES:
        others = [(name, value) for name, value in scope["headers"] if name != b"content-type"]
        scope["headers"] = [*others, (b"content-type", b"application/json")]


def _read_request_id(headers: dict[bytes, bytes]) -> str:
    own = headers.get(REQUEST_ID_HEADER, b"").decode("latin-1")
    return own if REQUEST_ID_PATTERN.fullmatch(own) else f"req_{getrandbits(60):015x}"


def _is_safe_link(scope: Scope, headers: dict[bytes, bytes]) -> bool:
    """Whether a link of another page is followed to where a request changes nothing: others claim runs, say."""
    is_link = headers.get(b"sec-fetch-mode") == b"navigate" and scope.get("method") in ("GET", "HEAD")
    return is_link and scope["path"] in LINKABLE_PATHS


def _parse_host(host: str) -> str:
    """A Host header without its port; empty for what is none."""
    found = HOST_PATTERN.fullmatch(host)
    return (found["six"] or found["name"] or "").lower() if found is not None else ""
