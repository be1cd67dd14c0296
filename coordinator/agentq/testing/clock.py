"""A clock that a test moves: what is due, and how long ago something was, are judged by it."""

from __future__ import annotations

from datetime import UTC, datetime

from agentq.coordinator.clock import wall_ms
from agentq.sdk.options import Duration, to_duration_ms


class Clock:
    """The server's time. It stands still until it is moved."""

    def __init__(self, start: datetime | None = None) -> None:
        self.now_ms = wall_ms() if start is None else round(start.timestamp() * 1000)

    def now(self) -> datetime:
        """The time, in UTC."""
        return datetime.fromtimestamp(self.now_ms / 1000, UTC)

    def advance(self, span: Duration) -> None:
        """Let time pass: `"90s"`, `"1h"` or a timedelta. Nothing happens by itself; run the worker."""
        self.now_ms += to_duration_ms(span)
