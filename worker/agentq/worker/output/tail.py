"""The newest bytes of several streams, in order, within a bound."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from agentq.coordinator.runs.logs import LogStream

JOINED_BYTES_MAX = 4 << 10
"""Smaller pieces are joined, so that a million tiny writes do not cost a million objects."""


class OutputTail:
    """Pieces of bytes, each with its stream. Beyond the bound the oldest are dropped, and counted."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes = 0
        self.left_out = 0
        self._pieces: deque[tuple[LogStream, bytearray]] = deque()

    def __iter__(self) -> Iterator[tuple[LogStream, bytearray]]:
        return iter(self._pieces)

    def append(self, stream: LogStream, piece: bytes) -> None:
        """Add the newest piece."""
        excess = len(piece) - self.bytes_max
        if excess > 0:
            self.left_out += excess
            piece = piece[excess:]
        if self._pieces and self._pieces[-1][0] == stream and len(self._pieces[-1][1]) < JOINED_BYTES_MAX:
            self._pieces[-1][1].extend(piece)
        else:
            self._pieces.append((stream, bytearray(piece)))
        self.bytes += len(piece)
        self._drop_oldest(self.bytes - self.bytes_max)

    def skip_line(self, bytes_max: int) -> None:
        """Drop the rest of a line that lost its beginning, unless it is longer than `bytes_max`."""
        oldest = self._pieces[0][1] if self._pieces else b""
        end = oldest.find(b"\n", 0, bytes_max) + 1
        self._drop_oldest(end)

    def clear(self) -> None:
        self._pieces.clear()
        self.bytes = self.left_out = 0

    def _drop_oldest(self, excess: int) -> None:
        while excess > 0:
            oldest = self._pieces[0][1]
            step = min(excess, len(oldest))
            if step == len(oldest):
                self._pieces.popleft()
            else:
                del oldest[:step]
            excess -= step
            self.bytes -= step
            self.left_out += step
