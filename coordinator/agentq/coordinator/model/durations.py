"""Parses and formats times and durations. Internally everything is milliseconds."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from agentq.coordinator.bounds import DELAY_MS_MAX
from agentq.coordinator.clock import wall_ms
from agentq.coordinator.errors import Invalid

_UNITS_MS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_DURATION_PATTERN = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|[dhms])")
EARLIEST_TIME_MS = -62_135_596_800_000
LATEST_TIME_MS = 253_402_300_799_999
"""The first and the last millisecond that has a date."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIME_OF_DAY = re.compile(r"([0-9]{1,2}):([0-9]{2})")


def parse_duration_ms(text: str) -> int:
    """Read a duration such as `90s`, `5m`, `1h30m`, `2d` or `250ms`."""
    pieces = _DURATION_PATTERN.findall(text)
    if not pieces or "".join(number + unit for number, unit in pieces) != text:
        raise Invalid(f"{text[:40]!r} is not a duration; write it like 90s, 5m, 1h30m or 2d.")
    total = round(sum(float(number) * _UNITS_MS[unit] for number, unit in pieces))
    if total > DELAY_MS_MAX:
        raise Invalid(f"{text[:40]!r} is too long; {format_duration(DELAY_MS_MAX)} is the most.")
    return total


def parse_time_ms(text: str) -> int:
    """Read a future time: ISO 8601, or `HH:MM` for its next occurrence. Local time, unless it names a zone."""
    now_ms = wall_ms()
    if hour := _TIME_OF_DAY.fullmatch(text):
        return _next_time_of_day(text, int(hour[1]), int(hour[2]), now_ms)
    try:
        moment = datetime.fromisoformat(text)
        at_ms = round(moment.astimezone(UTC).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise Invalid(f"{text[:40]!r} is not a time; write it like 14:30 or 2030-01-31T14:30.") from None
    if at_ms < now_ms:
        raise Invalid(f"{text[:40]!r} has passed already; it is {format_iso(now_ms)} now.")
    if at_ms > now_ms + DELAY_MS_MAX:
        raise Invalid(f"{text[:40]!r} is too far away; {format_duration(DELAY_MS_MAX)} from now is the most.")
    return at_ms


def _next_time_of_day(text: str, hour: int, minute: int, now_ms: int) -> int:
    now = datetime.fromtimestamp(now_ms / 1000)
    try:
        moment = now.replace(hour=hour, minute=minute, second=0, microsecond=0)
    except ValueError:
        raise Invalid(f"{text!r} is not a time of day; write it like 14:30.") from None
    if moment <= now:
        moment += timedelta(days=1)
    return round(moment.timestamp() * 1000)


def format_iso(at_ms: int) -> str:
    """A time in UTC, to the millisecond: 2030-01-31T14:30:00.000Z."""
    return to_utc(at_ms).replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def parse_iso_ms(text: str) -> int:
    """Read what `format_iso` writes."""
    return (datetime.fromisoformat(text) - _EPOCH) // timedelta(milliseconds=1)


def to_utc(at_ms: int) -> datetime:
    """A time in UTC. A number beyond all dates, which only a damaged record has, is the first or the last of them."""
    at_ms = min(max(at_ms, EARLIEST_TIME_MS), LATEST_TIME_MS)
    return datetime.fromtimestamp(at_ms // 1000, UTC).replace(microsecond=at_ms % 1000 * 1000)


def format_duration(span_ms: int) -> str:
    """A duration in its two largest units: 1 h 30 m, 2.4 s, 80 ms."""
    span_ms = max(0, span_ms)
    if span_ms < 1000:
        return f"{span_ms} ms"
    if span_ms < 60_000:
        return f"{span_ms / 1000:.1f}".removesuffix(".0") + " s" if span_ms < 59_950 else "1 m"
    words: list[str] = []
    for unit in ("d", "h", "m", "s"):
        number, span_ms = divmod(span_ms, _UNITS_MS[unit])
        if number or words:
            words.append(f"{number} {unit}" if number else "")
    return " ".join(filter(None, words[:2]))
