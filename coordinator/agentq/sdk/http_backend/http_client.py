"""Requests to a coordinator, over connections that are kept. Its tasks:

1. Send a request and return the answer; an answer that refuses is raised as the exception it stands for.
2. Send it again, for a bounded time, when the connection broke or the server asks for a moment. Requests may so
   arrive twice; each that changes something has a key by which the server knows it again.
3. Open a stream, for whoever listens.
"""

from __future__ import annotations

import http.client
import itertools
import json
import os
import random
import socket
import ssl
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from agentq.coordinator.clock import monotonic_ms
from agentq.coordinator.errors import Invalid, Unreachable
from agentq.coordinator.model.ids import new_nonce
from agentq.coordinator.security import local_token
from agentq.coordinator.storage import embedded
from agentq.coordinator.storage.url import is_loopback
from agentq.sdk.http_backend.errors import response_error

ATTEMPTS_MAX = 5
RESTART_MS = 15_000
"""For how long a coordinator that has answered before is tried at the least: it may be started again."""
RETRY_DELAY_MS = 100
RETRY_DELAY_MS_MAX = 2_000
RETRY_AFTER_S_MAX = 10.0
CONNECT_TIMEOUT_S = 5.0
RESPONSE_TIMEOUT_S = 30.0
STREAM_TIMEOUT_S = 45.0
"""How long a stream may say nothing; the server speaks every 15 s."""
IDLE_CONNECTIONS_MAX = 16
RETRY_STATUSES = (429, 502, 503, 504)
"""Answers after which the same request may fare better."""

PLAIN_HTTP_VARIABLE = "AGENTQ_PLAIN_HTTP"
"""The variable that lets a token go to another host without encryption, as --plain-http does for a worker."""

QueryParameters = Mapping[str, object]


def new_request_key() -> str:
    """What the server knows a request by when it is sent again."""
    return f"{new_nonce()}{new_nonce()}"


class HttpClient:
    """One coordinator."""

    def __init__(self, url: str, token: str | Path | None, home: str = "") -> None:
        parts = urlsplit(url)
        if not parts.hostname or parts.query or parts.fragment or parts.username is not None:
            raise Invalid("The address of a coordinator looks like https://agentq.example.com:8765, and no more.")
        self.where = f"{parts.scheme}://{parts.netloc}"
        self._host, self._prefix = parts.hostname, parts.path.rstrip("/")
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._port = parts.port or (443 if self._tls else 80)
        shown = read_token(token)
        if shown and self._tls is None and not is_loopback(parts.hostname) and not _allows_plain_http():
            raise Invalid(
                f"The token would go to {parts.hostname[:80]} unencrypted: write https://, or set "
                f"{PLAIN_HTTP_VARIABLE}=true if "
                "the network between is private."
            )
        shown = shown or local_token.token_for_address(embedded.data_folder(home), self._host, self._port)
        self._headers = {"User-Agent": "agentq-sdk", **({"Authorization": f"Bearer {shown}"} if shown else {})}
        self._idle: list[http.client.HTTPConnection] = []
        self._lock = threading.Lock()
        self._patience_ms = 0

    def get(self, path: str, query: QueryParameters | None = None) -> Any:
        """What is at a path, read as JSON."""
        return self.say("GET", path, query=query)

    def post(
        self,
        path: str,
        body: object = None,
        *,
        key: str | None = None,
        query: QueryParameters | None = None,
        trace: str | None = None,
    ) -> Any:
        """Send a body, as JSON unless it is bytes; `key` is what the server knows it by when it is sent again, and
        `trace` where in a trace that is done.
        """
        sent = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        return self.say("POST", path, sent, key=key, query=query, trace=trace)

    def put(self, path: str, body: object, *, key: str | None = None, only_new: bool = False) -> Any:
        """Put JSON at a path; `only_new` refuses to replace what is there."""
        return self.say("PUT", path, json.dumps(body).encode(), key=key, only_new=only_new)

    def delete(self, path: str, query: QueryParameters | None = None) -> Any:
        """Remove what is at a path; returns what is told of that, if anything."""
        return self.say("DELETE", path, query=query)

    def say(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        *,
        key: str | None = None,
        query: QueryParameters | None = None,
        trace: str | None = None,
        only_new: bool = False,
    ) -> Any:
        """One request, as often as it takes."""
        target = self._target(path, query)
        beside = {"Idempotency-Key": key, "traceparent": trace, "If-None-Match": "*" if only_new else None}
        headers = {**self._headers, **{name: value for name, value in beside.items() if value}}
        if body:
            headers["Content-Type"] = "application/json"
        until_ms = monotonic_ms() + self._patience_ms
        for attempt in itertools.count(1):
            over = attempt >= ATTEMPTS_MAX and monotonic_ms() >= until_ms
            wait_s = random.uniform(0, min(RETRY_DELAY_MS * 3 ** (attempt - 1), RETRY_DELAY_MS_MAX)) / 1000
            try:
                status, after, answer = self._exchange(method, target, headers, body)
            except (OSError, http.client.HTTPException) as fault:
                if over or isinstance(fault, ssl.SSLCertVerificationError):
                    raise self.unreachable(fault) from fault
            else:
                if status < 400:
                    self._patience_ms = RESTART_MS
                    return json.loads(answer) if answer else None
                if status not in RETRY_STATUSES or over or _is_final_answer(status, answer):
                    raise response_error(status, answer, self.where)
                wait_s = max(wait_s, min(after, RETRY_AFTER_S_MAX) if status == 429 else 0)
            time.sleep(wait_s)
        raise AssertionError("it goes on until it returns or raises")

    def stream(self, path: str, query: QueryParameters | None, last: str | None) -> OpenStream:
        """Open a stream of events, which goes on after the last one that was seen."""
        connection = self._connection(CONNECT_TIMEOUT_S)
        headers = {**self._headers, "Accept": "text/event-stream", **({"Last-Event-ID": last} if last else {})}
        try:
            connection.connect()
            connection.sock.settimeout(STREAM_TIMEOUT_S)
            connection.request("GET", self._target(path, query), headers=headers)
            answer = connection.getresponse()
            if answer.status >= 400:
                raise response_error(answer.status, answer.read(), self.where)
        except (OSError, http.client.HTTPException) as fault:
            connection.close()
            raise self.unreachable(fault) from fault
        except BaseException:
            connection.close()
            raise
        return OpenStream(connection, answer)

    def unreachable(self, fault: BaseException) -> Unreachable:
        """What is raised when nothing comes back."""
        return Unreachable(f"The coordinator at {self.where} cannot be reached: {fault or type(fault).__name__}.")

    def close(self) -> None:
        """Close what is idle."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _exchange(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> tuple[int, float, bytes]:
        with self._lock:
            kept = self._idle.pop() if self._idle else None
        if kept is not None:
            # The server may have closed it meanwhile, which shows only now.
            with suppress(OSError, http.client.HTTPException):
                return self._on(kept, method, target, headers, body)
        return self._on(self._connection(RESPONSE_TIMEOUT_S), method, target, headers, body)

    def _on(
        self, connection: http.client.HTTPConnection, method: str, target: str, headers: Mapping[str, str], body: bytes
    ) -> tuple[int, float, bytes]:
        try:
            connection.request(method, target, body or None, dict(headers))
            answer = connection.getresponse()
            content = answer.read()
        except BaseException:
            connection.close()
            raise
        with self._lock:
            keep = not answer.will_close and len(self._idle) < IDLE_CONNECTIONS_MAX
            if keep:
                self._idle.append(connection)
        if not keep:
            connection.close()
        after = answer.headers.get("Retry-After", "")
        return answer.status, float(after) if after.isdigit() else 0.0, content

    def _connection(self, timeout_s: float) -> http.client.HTTPConnection:
        if self._tls is not None:
            return http.client.HTTPSConnection(self._host, self._port, timeout=timeout_s, context=self._tls)
        return http.client.HTTPConnection(self._host, self._port, timeout=timeout_s)

    def _target(self, path: str, query: QueryParameters | None) -> str:
        words = {name: value for name, value in (query or {}).items() if value is not None}
        return f"{self._prefix}{quote(path)}{f'?{urlencode(words)}' if words else ''}"


class OpenStream:
    """A stream that is open."""

    def __init__(self, connection: http.client.HTTPConnection, answer: http.client.HTTPResponse) -> None:
        self._connection = connection
        self._answer = answer
        self.over = answer.status == 204

    def line(self) -> str | None:
        """The next line, without its end; None at the end of the stream."""
        raw = self._answer.readline()
        return raw.decode().rstrip("\r\n") if raw else None

    def interrupt(self) -> None:
        """End it from another thread, which waits for a line."""
        held = self._connection.sock
        if held is not None:
            with suppress(OSError):
                held.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._answer.close()
        self._connection.close()


def _is_final_answer(status: int, answer: bytes) -> bool:
    """Whether a coordinator itself has said so, of which asking again at once changes nothing: a queue that takes no
    runs, say. What a proxy says of a coordinator, or that of its store, may pass."""
    return status in (503, 504) and any(name in answer for name in (b":try-later", b":undurable"))


def _allows_plain_http() -> bool:
    return os.environ.get(PLAIN_HTTP_VARIABLE, "").lower() in ("1", "true", "yes", "on")


def read_token(given: str | Path | None) -> str:
    """The token: the one given, as text or in a file, or that of the environment; empty for none."""
    if isinstance(given, str):
        return given.strip()
    path = given or os.environ.get("AGENTQ_TOKEN_FILE")
    if given is None and os.environ.get("AGENTQ_TOKEN"):
        return os.environ["AGENTQ_TOKEN"].strip()
    if not path:
        return ""
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(f"The token in {path} cannot be read: {error}.") from error
