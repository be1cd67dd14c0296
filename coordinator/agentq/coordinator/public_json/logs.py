"""Log entries, in public JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentq.coordinator.model.durations import format_iso

if TYPE_CHECKING:
    from agentq.coordinator.runs.logs import RunLogEntry


def log_position_json(entry: RunLogEntry) -> dict[str, Any]:
    """Where a piece of a log stands; what it holds comes beside it."""
    return {"id": entry.id, "at": format_iso(entry.at_ms), "attempt": entry.attempt, "stream": entry.stream}


def log_json(entry: RunLogEntry) -> dict[str, Any]:
    """A piece of a log."""
    return log_position_json(entry) | {"text": entry.text, "from_byte": entry.from_byte}
