"""Computes the ticks of a schedule: cron in a time zone, a fixed interval, or once; and which late ticks still count.

A tick is a time, in milliseconds. Every function computes from a rule and times alone, so every process gets the same
answer. When the clocks change, cron lines behave as in Debian's cron: a job at a fixed time in the hour that is left
out runs right after that hour, and a job in the hour that comes twice runs the first time; a job with a minute or hour
that begins with `*` follows elapsed time.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from agentq.coordinator import bounds as most
from agentq.coordinator.errors import Invalid
from agentq.coordinator.model.durations import format_duration, format_iso
from agentq.coordinator.model.field_types import Milliseconds

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

CRON_EXAMPLE = "30 2 * * *"
CRON_ALIASES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
CRON_FIELDS = {
    "minute": "0 to 59",
    "hour": "0 to 23",
    "day-of-month": "1 to 31",
    "month": "1 to 12",
    "day-of-week": "0 to 7",
}
LOOKBACK_STEPS_MS = (60_000, 3_600_000, 86_400_000, most.CATCH_UP_MS_MAX)
"""How far back to look for the latest tick, step by step, so that few ticks are computed on the way."""

TimestampMs = Annotated[int, Field(ge=0, le=most.DUE_AT_MS_MAX)]


class ScheduleStep(NamedTuple):
    """The next step of a schedule: the tick to run, None if all were missed; and the tick after it, None at the end."""

    tick_ms: int | None
    next_ms: int | None


class ScheduleRule(BaseModel):
    """The times of a schedule."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)

    cron: Annotated[str, Field(max_length=most.CRON_LENGTH)] | None = None
    tz: str = "UTC"
    every_ms: Annotated[int, Field(ge=most.EVERY_MS_MIN, le=most.DELAY_MS_MAX)] | None = None
    start_ms: TimestampMs | None = None
    """The start of the interval, whose first tick is one interval later; by default, the time when it is added."""
    at_ms: TimestampMs | None = None
    until_ms: TimestampMs | None = None
    """The time after which there are no more ticks."""
    jitter_ms: Annotated[int, Field(ge=0, le=most.JITTER_MS_MAX)] = 0
    missed: Literal["none", "latest", "all"] = "none"
    """Which ticks that no scheduler fired in time are run late, within `catch_up_ms`: none, the latest or all."""
    catch_up_ms: Annotated[Milliseconds, Field(gt=0, le=most.CATCH_UP_MS_MAX)] | None = None

    @model_validator(mode="after")
    def _is_one_rule(self) -> Self:
        if sum(each is not None for each in (self.cron, self.every_ms, self.at_ms)) != 1:
            raise ValueError("a schedule needs one of cron, every_ms and at_ms")
        if self.every_ms is not None and self.jitter_ms >= self.every_ms:
            raise ValueError(f"a jitter of {format_duration(self.jitter_ms)} is not less than the interval")
        if (self.missed == "none") != (self.catch_up_ms is None):
            raise ValueError("to catch up takes both: which ticks (latest or all), and how late they may be")
        return self

    def after(self, at_ms: int) -> int | None:
        """The first tick later than this."""
        tick = self._after(at_ms)
        return None if tick is None or tick > (self.until_ms or most.DUE_AT_MS_MAX) else tick

    def _after(self, at_ms: int) -> int | None:
        if self.every_ms is not None:
            start_ms = self.start_ms or 0
            return start_ms + self.every_ms * max(1, (at_ms - start_ms) // self.every_ms + 1)
        if self.at_ms is not None:
            return self.at_ms if self.at_ms > at_ms else None
        return next_cron_tick(self.cron or "", self.tz, at_ms)

    def wake_ms(self, schedule: str, tick_ms: int) -> int:
        """When a tick is run: the tick plus its jitter, which is the same in every process."""
        if not self.jitter_ms:
            return tick_ms
        chance = int.from_bytes(blake2b(f"jitter {schedule} {tick_ms}".encode(), digest_size=8).digest())
        return tick_ms + chance % self.jitter_ms

    def step(self, schedule: str, next_ms: int, now_ms: int) -> ScheduleStep:
        """The step that is due now, if `next_ms` is the next tick. Ticks before the one to run were missed."""
        oldest_ms = now_ms - (self.catch_up_ms or most.TICK_DELAY_MS_MAX)

        def due(tick_ms: int | None) -> bool:
            return tick_ms is not None and self.wake_ms(schedule, tick_ms) <= now_ms

        first = self._from(next_ms, oldest_ms - self.jitter_ms)
        while first is not None and self.wake_ms(schedule, first) < oldest_ms:
            first = self.after(first)
        if first is None or not due(first):
            return ScheduleStep(None, first)
        tick = first if self.missed == "all" else self._latest(first, now_ms, schedule)
        return ScheduleStep(tick, self.after(tick))

    def _latest(self, first: int, now_ms: int, schedule: str) -> int:
        """The last due tick from `first` on."""
        for back_ms in LOOKBACK_STEPS_MS:
            later = self._from(first, now_ms - back_ms - self.jitter_ms)
            if later is not None and self.wake_ms(schedule, later) <= now_ms:
                first = later
                break
        while (later := self.after(first)) is not None and self.wake_ms(schedule, later) <= now_ms:
            first = later
        return first

    def _from(self, next_ms: int, at_ms: int) -> int | None:
        """The first tick at or after `at_ms`, but not before `next_ms`."""
        return next_ms if at_ms <= next_ms else self.after(at_ms - 1)

    def describe(self) -> str:
        """The rule in a few words."""
        if self.cron is not None:
            return f"{self.cron} ({self.tz})"
        return (
            f"every {format_duration(self.every_ms)}"
            if self.every_ms is not None
            else f"at {format_iso(self.at_ms or 0)}"
        )


def next_cron_tick(line: str, tz: str, at_ms: int) -> int | None:
    """The first tick of a cron line after a time; None if there is none in fifty years."""
    from datetime import datetime  # imported here, with cronsim and zoneinfo: only schedules need them

    from cronsim import CronSim, CronSimError

    fields = parse_cron(line)
    try:
        for moment in CronSim(fields, datetime.fromtimestamp(at_ms // 1000, load_timezone(tz))):
            tick_ms = int(moment.timestamp()) * 1000
            # In the second pass of the hour that comes twice, wall clock time still places the first pass ahead.
            if tick_ms > at_ms:
                return tick_ms
    except CronSimError as error:
        field = str(error).removeprefix("Bad ")
        span = f", which goes from {CRON_FIELDS[field]}" if field in CRON_FIELDS else ""
        raise Invalid(f"{line[:80]!r} has a wrong {field}{span}; write it like '{CRON_EXAMPLE}'.") from None
    except (OverflowError, ValueError):
        return None
    return None


def parse_cron(line: str) -> str:
    """The five fields of a cron line, or of its alias such as `@daily`."""
    fields = CRON_ALIASES.get(line.strip().lower(), line)
    if len(fields.split()) != 5 or len(fields) > most.CRON_LENGTH:
        raise Invalid(
            f"{line[:80]!r} is not a cron line, which has five fields: minute, hour, day, month and weekday, "
            f"as in '{CRON_EXAMPLE}'."
        )
    return fields


@lru_cache(maxsize=1024)
def load_timezone(name: str) -> ZoneInfo:
    """A time zone by its name."""
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError):
        raise Invalid(
            f"{name[:80]!r} is not a time zone{_suggest_timezone(name)}; write it like Europe/Berlin or UTC."
        ) from None


def _suggest_timezone(name: str) -> str:
    from difflib import get_close_matches
    from zoneinfo import available_timezones

    by_small = {each.lower(): each for each in available_timezones()}
    close = get_close_matches(name.lower(), by_small, n=1, cutoff=0.7)
    return f" (perhaps {by_small[close[0]]})" if close else ""
