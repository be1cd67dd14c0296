"""A clock that tests move; it decides what is due."""

from __future__ import annotations

from datetime import UTC, datetime

from agentq.coordinator.clock import wall_ms
from agentq.sdk.options import Duration, to_duration_ms


class Clock:
    """The server's time. It stands still until a test moves it."""

    def __init__(self, start: datetime | None = None) -> None:
        self.now_ms = wall_ms() if start is None else round(start.timestamp() * 1000)

    def now(self) -> datetime:
        """The time, in UTC."""
        return datetime.fromtimestamp(self.now_ms / 1000, UTC)

    def advance(self, span: Duration) -> None:
        """Let time pass: `"90s"`, `"1h"` or a timedelta. Runs are executed only by the worker."""
        self.now_ms += to_duration_ms(span)
