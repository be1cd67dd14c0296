"""What the bench has called: functions that do next to nothing, or say when they began."""

from __future__ import annotations

import os
from functools import cache
from struct import Struct

from agentq.coordinator.clock import monotonic_ns

MARK_FORMAT = Struct("<q")


def nothing(number: int) -> int:
    return number


def mark(path: str) -> None:
    """Write to a fifo when this began."""
    os.write(_open_fifo(path), MARK_FORMAT.pack(monotonic_ns()))


def hold(path: str, seconds: float) -> None:
    """The same, and stay for a while."""
    from threading import Event

    mark(path)
    Event().wait(seconds)


@cache
def _open_fifo(path: str) -> int:
    return os.open(path, os.O_WRONLY)
