"""uvicorn protocol with limits for slow clients (slow-loris).

The headers of each request must arrive within a time and a size, from the start of the connection or the last request.
Bytes between the pieces of a body, and after it, have the same limit. A client that does not read its response is
disconnected after the same time.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from agentq.server.http.disconnect import BODY_COMPLETE_KEY, mark_disconnected
from agentq.server.http.write_buffer import BufferedTransport

HEAD_BYTES_MAX = 64 << 10
BODY_HEADERS = (b"content-length", b"transfer-encoding")


def make_protocol(head_timeout_ms: int) -> type[asyncio.Protocol]:
    """The protocol class with this timeout."""
    return type("Patient", (TimeoutHttpProtocol,), {"timeout_s": head_timeout_ms / 1000})


class TimeoutHttpProtocol(HttpToolsProtocol):
    """One connection."""

    timeout_s = 20.0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._awaits_head = True
        self._head_timer: asyncio.TimerHandle | None = None
        self._unread_timer: asyncio.TimerHandle | None = None
        self._head_bytes = 0
        self._framing_bytes = 0
        """Bytes since the last piece of a body."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._buffered_transport = BufferedTransport(transport, self.loop)
        super().connection_made(self._buffered_transport)  # type: ignore[arg-type]
        self._start_head_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._finish_head()
        self._set_unread_timer(None)
        if self.cycle is not None:
            mark_disconnected(self.cycle.scope["state"])
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if not self._awaits_head and (self.cycle is None or self.cycle.response_complete):
            self._awaits_head, self._head_bytes = True, 0
        if self._awaits_head:
            self._head_bytes += len(data)
            # A body may begin in this piece, so only the bytes before it count.
            if self._head_bytes - len(data) > HEAD_BYTES_MAX:
                self.transport.abort()
                return
        self._framing_bytes += len(data)
        super().data_received(data)
        if self._awaits_head:
            self._start_head_timer()
        elif self._framing_bytes > HEAD_BYTES_MAX + len(data):
            self.transport.abort()

    def eof_received(self) -> None:
        self._buffered_transport.flush()  # the transport closes next, and a client that sends no more may still read

    def handle_websocket_upgrade(self) -> None:
        """Refuses an upgrade with a body, which would never be read."""
        if any(name in BODY_HEADERS for name, _ in self.headers):
            self.send_400_response("Invalid HTTP request received.")
        else:
            super().handle_websocket_upgrade()

    def on_headers_complete(self) -> None:
        self._finish_head()
        self._framing_bytes = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._framing_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self.scope["state"][BODY_COMPLETE_KEY] = True
        super().on_message_complete()
        if not self.pipeline:
            self.flow.resume_reading()  # otherwise a disconnect would go unnoticed

    def pause_writing(self) -> None:
        super().pause_writing()
        self._set_unread_timer(self.loop.call_later(self.timeout_s, self.transport.abort))

    def resume_writing(self) -> None:
        super().resume_writing()
        self._set_unread_timer(None)

    def _start_head_timer(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(self.timeout_s, self.transport.abort)

    def _finish_head(self) -> None:
        self._awaits_head = False
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _set_unread_timer(self, timer: asyncio.TimerHandle | None) -> None:
        if self._unread_timer is not None:
            self._unread_timer.cancel()
        self._unread_timer = timer
