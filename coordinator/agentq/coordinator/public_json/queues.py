"""Queues and limits, in public JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentq.coordinator.model.durations import format_iso, parse_iso_ms
from agentq.coordinator.model.lifecycle import State
from agentq.coordinator.public_json import read_time

if TYPE_CHECKING:
    from agentq.coordinator.queues.limits import LimitRecord
    from agentq.coordinator.queues.stats import QueuePause, QueueStats


def queue_json(record: QueueStats) -> dict[str, Any]:
    """A queue."""
    return {
        "queue": record.queue,
        **{state.value: record.counts.get(state, 0) for state in State},
        "oldest_at": None if record.oldest_ms is None else format_iso(record.oldest_ms),
        "submitted_a_minute": record.submitted_a_minute,
        "ended_a_minute": record.ended_a_minute,
        "paused": _pause_json(record.paused),
        "drained": _pause_json(record.drained),
    }


def _pause_json(pause: QueuePause | None) -> dict[str, str] | None:
    """With the queue that it was said of: `*` is all of them."""
    return None if pause is None else {"queue": pause.queue, "at": format_iso(pause.at_ms), "why": pause.why}


def read_queue(told: dict[str, Any]) -> QueueStats:
    """The queue that JSON tells of."""
    from agentq.coordinator.queues.stats import QueueStats

    return QueueStats(
        queue=told["queue"],
        counts={state: told[state] for state in State if told[state]},
        oldest_ms=read_time(told["oldest_at"]),
        submitted_a_minute=told["submitted_a_minute"],
        ended_a_minute=told["ended_a_minute"],
        paused=_read_pause(told["paused"]),
        drained=_read_pause(told["drained"]),
    )


def _read_pause(told: dict[str, str] | None) -> QueuePause | None:
    from agentq.coordinator.queues.stats import QueuePause

    return None if told is None else QueuePause(told["queue"], parse_iso_ms(told["at"]), told["why"])


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


def read_limit(told: dict[str, Any]) -> LimitRecord:
    """The limit that JSON tells of."""
    from agentq.coordinator.queues.limits import LimitRate, LimitRecord

    return LimitRecord(
        **{name: told[name] for name in ("key", "max", "when_full", "held", "waiting")},
        rate=told["rate"] and LimitRate(**told["rate"]),
        shut_until_ms=read_time(told["shut_until"]),
        shut_why=told["shut_why"] or "",
    )
