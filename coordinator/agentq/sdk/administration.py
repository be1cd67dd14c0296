"""Schedules, limits, queues and dead letters.

Records are dicts as in the HTTP API and as `agentq … --json` prints them, with every backend.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from agentq.coordinator.clock import wall_ms
from agentq.coordinator.errors import Invalid, quote_input
from agentq.coordinator.model.spec import RunSpec
from agentq.coordinator.public_json.queues import limit_json, queue_json
from agentq.coordinator.public_json.schedules import schedule_json, upcoming_json
from agentq.coordinator.queues.limits import LimitFullPolicy, LimitRate
from agentq.coordinator.schedules.verbs import OverlapPolicy, make_schedule_rule
from agentq.coordinator.security.tokens import parse_rate
from agentq.sdk.options import Duration, to_duration_ms, to_time_ms

if TYPE_CHECKING:
    from agentq.coordinator.schedules.cron import ScheduleRule
    from agentq.sdk.backend.queues import LimitVerbs, QueueVerbs
    from agentq.sdk.backend.schedules import ScheduleVerbs

JsonRecord = dict[str, Any]
WhenFull = Literal["queue", "cancel_newest", "cancel_running", "keep_latest"]


class ScheduleTiming(TypedDict, total=False):
    """When a schedule makes runs: by one of `cron`, `every` and `at`; and what it does about ticks that it missed."""

    cron: str
    tz: str
    every: Duration
    at: datetime
    until: datetime
    jitter: Duration
    missed: Literal["latest", "all"]
    catch_up: Duration
    overlap: Literal["skip", "queue", "cancel_old", "allow"]


_DURATION_OPTIONS, _TIME_OPTIONS = ("every", "jitter", "catch_up"), ("at", "until")


def build_schedule_rule(timing: ScheduleTiming) -> tuple[ScheduleRule, OverlapPolicy]:
    """The rule of a schedule, and its overlap policy."""
    given: dict[str, Any] = dict(timing)
    unknown = given.keys() - ScheduleTiming.__annotations__.keys()
    if unknown:
        raise Invalid(
            f"There is no option {sorted(unknown)[0]!r}; there are {', '.join(ScheduleTiming.__annotations__)}."
        )
    if sum(kind in given for kind in ("cron", "every", "at")) != 1:
        raise Invalid("A schedule needs one of cron, every and at, as in task.schedule('nightly', cron='30 2 * * *').")
    overlap = given.pop("overlap", "skip")
    if overlap not in list(OverlapPolicy):
        raise Invalid(f"overlap: {overlap!r} is not a policy; there are {', '.join(OverlapPolicy)}.")
    fields = {f"{name}_ms": to_duration_ms(given.pop(name)) for name in _DURATION_OPTIONS if name in given}
    fields |= {f"{name}_ms": to_time_ms(name, given.pop(name)) for name in _TIME_OPTIONS if name in given}
    return make_schedule_rule(**fields, **given), OverlapPolicy(overlap)


def check_schedule_arguments(args: object, kwargs: object) -> None:
    """Refuse arguments of a scheduled call that are no list, and keywords that are no dict."""
    if isinstance(args, str) or not isinstance(args, Sequence):
        raise Invalid(f"The arguments of a schedule are a list, such as [1], not {quote_input(args)}.")
    if not isinstance(kwargs, Mapping | None):
        raise Invalid(f"The keywords of a schedule are a dict, such as {{'number': 1}}, not {quote_input(kwargs)}.")


class ClientSchedules:
    """The schedules of a namespace."""

    def __init__(self, schedules: ScheduleVerbs) -> None:
        self._schedules = schedules

    def put(self, name: str, spec: RunSpec, rule: ScheduleRule, overlap: OverlapPolicy) -> JsonRecord:
        return schedule_json(self._schedules.add(name, rule, spec, overlap=overlap, replace=True))

    def all(self) -> list[JsonRecord]:
        return [schedule_json(each) for each in self._schedules.all()]

    def get(self, name: str) -> JsonRecord:
        """A schedule, with its next ticks."""
        found = self._schedules.get(name)
        return schedule_json(found) | {"next": upcoming_json(found, wall_ms())}

    def pause(self, name: str, why: str = "") -> JsonRecord:
        """No tick comes until it is resumed; the runs that it made go on."""
        return schedule_json(self._schedules.pause(name, why))

    def resume(self, name: str) -> JsonRecord:
        return schedule_json(self._schedules.resume(name))

    def run(self, name: str) -> str:
        """Submit a run of it now, regardless of its rule; returns the run's id."""
        return self._schedules.run(name).id

    def remove(self, name: str) -> None:
        """With its history; the runs that it made go on."""
        self._schedules.remove(name)


class ClientLimits:
    """The limits of a namespace."""

    def __init__(self, limits: LimitVerbs) -> None:
        self._limits = limits

    def set(
        self, key: str, most: int | None = None, *, rate: str | None = None, when_full: WhenFull = "queue"
    ) -> JsonRecord:
        """So many runs at once, a rate such as `100/1m`, or both."""
        if when_full not in list(LimitFullPolicy):
            raise Invalid(f"when_full: {when_full!r} is not a choice; there are {', '.join(LimitFullPolicy)}.")
        bucket = None if rate is None else LimitRate(**parse_rate(str(rate))._asdict())
        self._limits.set(key, most=most, rate=bucket, when_full=LimitFullPolicy(when_full))
        return limit_json(self._limits.get(key))

    def all(self) -> list[JsonRecord]:
        return [limit_json(each) for each in self._limits.all()]

    def remove(self, key: str) -> None:
        self._limits.remove(key)


class ClientQueues:
    """The queues of a namespace."""

    def __init__(self, queues: QueueVerbs) -> None:
        self._queues = queues

    def all(self) -> list[JsonRecord]:
        return [queue_json(each) for each in self._queues.all()]

    def pause(self, queue: str, why: str = "") -> None:
        """Let workers claim nothing from it; what runs goes on."""
        self._queues.pause(queue, why)

    def resume(self, queue: str) -> None:
        self._queues.resume(queue)

    def drain(self, queue: str, why: str = "") -> None:
        """Let no new runs in until it is resumed."""
        self._queues.drain(queue, why)

    def move(self, queue: str, to: str) -> int:
        """Move the runs that wait to another queue; returns how many."""
        return self._queues.move(queue, to)

    def purge(self, queue: str) -> int:
        """Cancel the runs that wait; returns how many."""
        return self._queues.purge(queue)
