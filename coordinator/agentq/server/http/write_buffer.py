"""Coalesces the writes of one response: the framework writes headers and body separately, and each would be a system
call, the largest cost of sending a short response."""

from __future__ import annotations

import asyncio
from typing import Any

BUFFER_BYTES_MAX = 64 << 10
"""The most bytes that are held back, so that the transport can signal back-pressure."""


class BufferedTransport:
    """A transport that sends the collected writes in the next iteration of the loop."""

    __slots__ = ("_loop", "_pieces", "_pieces_bytes", "_transport")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._pieces: list[bytes] = []
        self._pieces_bytes = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if not self._pieces:
            self._loop.call_soon(self.flush)
        self._pieces.append(data)
        self._pieces_bytes += len(data)
        if self._pieces_bytes >= BUFFER_BYTES_MAX:
            self.flush()

    def close(self) -> None:
        self.flush()
        self._transport.close()

    def flush(self) -> None:
        """Send the collected writes now."""
        pieces, self._pieces, self._pieces_bytes = self._pieces, [], 0
        if pieces and not self._transport.is_closing():
            self._transport.write(b"".join(pieces))
