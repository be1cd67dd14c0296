"""Queues and limits, in public JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentq.coordinator.model.durations import format_iso
from agentq.coordinator.model.lifecycle import State

if TYPE_CHECKING:
    from agentq.coordinator.queues.limits import LimitRecord
    from agentq.coordinator.queues.stats import QueuePause, QueueStats


def queue_json(record: QueueStats) -> dict[str, Any]:
    """A queue."""
    return {
        "queue": record.queue,
        **{state.value: record.counts.get(state, 0) for state in State},
        "oldest_at": None if record.oldest_ms is None else format_iso(record.oldest_ms),
        "submitted_a_minute": round(record.submitted_a_minute, 1),
        "ended_a_minute": round(record.ended_a_minute, 1),
        "paused": _pause_json(record.paused),
        "drained": _pause_json(record.drained),
    }


def _pause_json(pause: QueuePause | None) -> dict[str, str] | None:
    return None if pause is None else {"at": format_iso(pause.at_ms), "why": pause.why}


def limit_json(found: LimitRecord) -> dict[str, Any]:
    """A limit."""
    return {
        "key": found.key,
        "max": found.max,
        "rate": None if found.rate is None else found.rate.model_dump(),
        "when_full": found.when_full.value,
        "shut_until": None if found.shut_until_ms is None else format_iso(found.shut_until_ms),
        "shut_why": found.shut_why or None,
        "held": found.held,
        "waiting": found.waiting,
    }
