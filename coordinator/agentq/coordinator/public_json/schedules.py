"""Schedules and their ticks, in public JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic_core import to_json

from agentq.coordinator.model.durations import format_iso, parse_iso_ms
from agentq.coordinator.public_json import format_time, read_time

if TYPE_CHECKING:
    from agentq.coordinator.schedules.cron import ScheduleRule
    from agentq.coordinator.schedules.verbs import ScheduleHistoryEntry, ScheduleRecord


UPCOMING_TICKS = 5
TIMES = ("next_at", "last_at", "created_at", "paused_at", "ended_at")
RULE_TIMES = {"start_at": "start_ms", "at": "at_ms", "until": "until_ms"}


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
        "start_at": format_time(rule.start_ms if rule else None),
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


def upcoming_json(found: ScheduleRecord, now_ms: int) -> list[str]:
    """The next ticks of a schedule."""
    return [format_iso(tick) for tick in found.coming(UPCOMING_TICKS, now_ms)]


def read_schedule(told: dict[str, Any]) -> ScheduleRecord:
    """The schedule that JSON tells of. The revision, by which the server tells changes apart, is not told."""
    from agentq.coordinator.model.spec import RunSpec
    from agentq.coordinator.schedules.verbs import ScheduleRecord

    times: dict[str, Any] = {f"{name}_ms": read_time(told[name]) for name in TIMES}
    spec = told["spec"]
    return ScheduleRecord(
        **{name: told[name] for name in ("name", "state", "overlap", "live")},
        **times,
        revision="",
        rule=_read_rule(told),
        spec=None if spec is None else RunSpec.model_validate_json(to_json(spec)),
        why=told["why"] or "",
        made_by=told["made_by"] or "",
    )


def _read_rule(told: dict[str, Any]) -> ScheduleRule | None:
    from agentq.coordinator.schedules.cron import ScheduleRule

    if told["jitter_ms"] is None:
        return None
    fields = {name: told[name] for name in ("cron", "every_ms", "jitter_ms", "missed", "catch_up_ms")}
    zone = {} if told["tz"] is None else {"tz": told["tz"]}
    times: dict[str, Any] = {field: read_time(told[name]) for name, field in RULE_TIMES.items()}
    return ScheduleRule(**fields, **zone, **times)


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


def read_schedule_history(told: dict[str, Any]) -> ScheduleHistoryEntry:
    """What became of a tick, from the JSON that tells of it."""
    from agentq.coordinator.schedules.verbs import ScheduleHistoryEntry

    return ScheduleHistoryEntry(
        **{name: told[name] for name in ("what", "run", "why")},
        tick_ms=read_time(told["tick_at"]),
        before_ms=read_time(told["before"]),
        at_ms=parse_iso_ms(told["at"]),
    )
