"""Sends one POST to an address that a client chose, with limits on all that it can do to the server.

The connection goes to a checked address (see `allowed_addresses.py`), while certificate and `Host` are those of the
name. Redirects are not followed. Only the status and `Retry-After` of the answer are used, and at most 64 KiB are read.
All of it has ten seconds.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from contextlib import suppress
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

from agentq.coordinator.bounds import WEBHOOK_DELAY_MS_MAX
from agentq.coordinator.clock import monotonic_ms, wall_ms
from agentq.coordinator.errors import AgentqError, NotAllowed
from agentq.coordinator.webhooks.delivery import DELIVERY_TIMEOUT_MS, DeliveryResult
from agentq.coordinator.webhooks.verbs import HTTPS_ONLY_MESSAGE
from agentq.server.webhooks.allowed_addresses import AllowedAddresses

RESPONSE_BYTES_MAX = 64 << 10
GONE_STATUS = 410
RETRY_AFTER_DIGITS = 9
"""Digits of Retry-After that are read; longer numbers exceed the maximum anyway."""


class InvalidHttpResponse(Exception):
    """The receiver's answer is not valid HTTP."""


class WebhookHttpClient:
    """Sends POSTs to allowed addresses."""

    def __init__(
        self,
        allowed_addresses: AllowedAddresses,
        *,
        plain_http: bool = False,
        timeout_ms: int = DELIVERY_TIMEOUT_MS,
        context: ssl.SSLContext | None = None,
    ) -> None:
        self._allowed_addresses = allowed_addresses
        self._plain_http = plain_http
        self._timeout_ms = timeout_ms
        self._context = context or ssl.create_default_context()

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> DeliveryResult:
        """Send a message; returns the result."""
        began_ms = monotonic_ms()
        status, wait_ms, error = None, 0, ""
        try:
            async with asyncio.timeout(self._timeout_ms / 1000):
                status, wait_ms = await self._send(url, headers, body)
        except TimeoutError:
            error = f"it did not answer within {self._timeout_ms} ms"
        except AgentqError as refused:
            error = str(refused)
        except ssl.SSLError as fault:
            error = f"its certificate or its TLS is not in order: {fault.reason or type(fault).__name__}"
        except InvalidHttpResponse as fault:
            error = str(fault)
        except OSError as fault:
            error = f"it cannot be reached: {fault.strerror or fault}"
        took_ms = monotonic_ms() - began_ms
        if status is not None and not 200 <= status < 300:
            error = f"it answered {status}" + (", and redirects are not followed" if 300 <= status < 400 else "")
        return DeliveryResult(not error, status, error, took_ms, gone=status == GONE_STATUS, wait_ms=wait_ms)

    async def check_url(self, url: str) -> None:
        """Refuse an address that is not allowed."""
        host, port, _ = self._split_url(url)
        await self._allowed_addresses.resolve_allowed(host, port)

    async def _send(self, url: str, headers: Mapping[str, str], body: bytes) -> tuple[int, int]:
        host, port, tls = self._split_url(url)
        address = await self._allowed_addresses.resolve_allowed(host, port)
        reader, writer = await asyncio.open_connection(
            address,
            port,
            limit=RESPONSE_BYTES_MAX,
            ssl=self._context if tls else None,
            server_hostname=host if tls else None,
        )
        try:
            writer.write(_build_request(url, headers, body))
            await writer.drain()
            return await _read_status(reader)
        finally:
            # Abort instead of closing: a slow receiver cannot delay it.
            writer.transport.abort()

    def _split_url(self, url: str) -> tuple[str, int, bool]:
        parts = urlsplit(url)
        tls = parts.scheme == "https"
        if not tls and not self._plain_http:
            raise NotAllowed(HTTPS_ONLY_MESSAGE)
        assert parts.hostname is not None
        return parts.hostname, parts.port or (443 if tls else 80), tls


def _build_request(url: str, headers: Mapping[str, str], body: bytes) -> bytes:
    parts = urlsplit(url)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    lines = [f"POST {target} HTTP/1.1", f"Host: {parts.netloc}", f"Content-Length: {len(body)}", "Connection: close"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("ascii") + body


async def _read_status(reader: asyncio.StreamReader) -> tuple[int, int]:
    """The status of the answer, and the delay that the receiver requests.

    The body is read up to a limit, so that the receiver can finish.
    """
    status = 0
    while status < 200:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError as error:
            raise InvalidHttpResponse(f"the head of its answer is longer than {RESPONSE_BYTES_MAX} bytes") from error
        except asyncio.IncompleteReadError as error:
            raise InvalidHttpResponse("it hung up without an answer") from error
        version, _, rest = head.partition(b" ")
        if not version.startswith(b"HTTP/1.") or not rest[:3].isdigit():
            raise InvalidHttpResponse("its answer is not HTTP/1.1")
        status = int(rest[:3])
    left = RESPONSE_BYTES_MAX - len(head)
    with suppress(OSError):
        while left > 0 and (piece := await reader.read(left)):
            left -= len(piece)
    return status, _parse_retry_after(head)


def _parse_retry_after(head: bytes) -> int:
    """The delay in `Retry-After`, in seconds or as a date; 0 if it is missing or invalid."""
    fields = (line.partition(b":") for line in head.split(b"\r\n")[1:])
    value = next((value for name, _, value in fields if name.strip().lower() == b"retry-after"), b"")
    text = value.decode("latin-1").strip()
    if text.isascii() and text.isdigit():
        return min(int(text[:RETRY_AFTER_DIGITS]) * 1000, WEBHOOK_DELAY_MS_MAX)
    try:
        at_ms = round(parsedate_to_datetime(text).timestamp() * 1000)
    except (ValueError, TypeError, OverflowError):
        return 0
    return min(max(0, at_ms - wall_ms()), WEBHOOK_DELAY_MS_MAX)
