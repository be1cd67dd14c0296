"""Schedules and their ticks, in public JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentq.coordinator.model.durations import format_iso
from agentq.coordinator.public_json import format_time

if TYPE_CHECKING:
    from agentq.coordinator.schedules.verbs import ScheduleHistoryEntry, ScheduleRecord


def schedule_json(found: ScheduleRecord) -> dict[str, Any]:
    """A schedule."""
    rule, spec = found.rule, found.spec
    return {
        "name": found.name,
        "state": found.state.value,
        "why": found.why or None,
        "cron": rule and rule.cron,
        "tz": rule.tz if rule is not None and rule.cron is not None else None,
        "every_ms": rule and rule.every_ms,
        "at": format_time(rule.at_ms if rule else None),
        "until": format_time(rule.until_ms if rule else None),
        "jitter_ms": rule and rule.jitter_ms,
        "missed": rule and rule.missed,
        "catch_up_ms": rule and rule.catch_up_ms,
        "overlap": found.overlap,
        "next_at": format_time(found.next_at_ms),
        "last_at": format_time(found.last_at_ms),
        "made_by": found.made_by or None,
        "created_at": format_time(found.created_at_ms),
        "paused_at": format_time(found.paused_at_ms),
        "ended_at": format_time(found.ended_at_ms),
        "live": found.live,
        "spec": spec and {"kind": spec.kind, **spec.model_dump(mode="json", exclude_defaults=True)},
    }


def schedule_history_json(each: ScheduleHistoryEntry) -> dict[str, Any]:
    """What became of a tick of a schedule."""
    return {
        "what": each.what,
        "tick_at": format_time(each.tick_ms),
        "before": format_time(each.before_ms),
        "at": format_iso(each.at_ms),
        "run": each.run,
        "why": each.why,
    }
