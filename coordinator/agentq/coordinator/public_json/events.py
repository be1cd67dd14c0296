"""Events and pieces of logs, in public JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentq.coordinator.model.durations import format_iso

if TYPE_CHECKING:
    from agentq.coordinator.events.stream import Event
    from agentq.coordinator.runs.logs import RunLogEntry


def event_json(event: Event) -> dict[str, Any]:
    """An event."""
    record = event.model_dump(mode="json") | {"at": format_iso(event.at_ms), "worker": event.worker or None}
    return {name: record[name] for name in ("id", "at", *type(event).model_fields) if name in record}


def read_event(told: dict[str, Any]) -> Event:
    """The event that `event_json` wrote."""
    from agentq.coordinator.events.stream import Event

    return Event.model_validate({**told, "worker": told["worker"] or ""})


def log_position_json(entry: RunLogEntry) -> dict[str, Any]:
    """Where a piece of a log stands; what it holds comes beside it."""
    return {"id": entry.id, "at": format_iso(entry.at_ms), "attempt": entry.attempt, "stream": entry.stream}


def log_json(entry: RunLogEntry) -> dict[str, Any]:
    """A piece of a log."""
    return log_position_json(entry) | {"text": entry.text, "from_byte": entry.from_byte}
