"""Schedules, limits, queues and dead letters: what is set and looked up beside runs.

Records are dicts as the HTTP API has them, and as `agentq … --json` prints them, whichever way a client goes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypedDict

from agentq.coordinator.errors import Invalid, quote_input
from agentq.coordinator.model.spec import RunSpec
from agentq.coordinator.public_json.queues import limit_json, queue_json
from agentq.coordinator.public_json.schedules import schedule_json
from agentq.coordinator.schedules.verbs import OverlapPolicy, Schedules, make_schedule_rule
from agentq.sdk.options import Duration, to_duration_ms, to_time_ms

if TYPE_CHECKING:
    from agentq.coordinator.queues.limits import Limits
    from agentq.coordinator.queues.queues import Queues
    from agentq.coordinator.schedules.cron import ScheduleRule
    from agentq.coordinator.storage.store import NamespaceStore

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
    """The rule of a schedule, and what becomes of a tick whose last run has not ended."""
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


class ScheduleVerbs(Protocol):
    """The schedules of a namespace."""

    def put(self, name: str, spec: RunSpec, rule: ScheduleRule, overlap: OverlapPolicy) -> JsonRecord: ...
    def all(self) -> list[JsonRecord]: ...
    def get(self, name: str) -> JsonRecord: ...
    def pause(self, name: str, why: str = "") -> JsonRecord:
        """No tick comes until it is resumed; the runs that it made go on."""

    def resume(self, name: str) -> JsonRecord: ...
    def run(self, name: str) -> str:
        """Make a run of it now, whatever its rule says; returns its id."""

    def remove(self, name: str) -> None:
        """With its history; the runs that it made go on."""


class LimitVerbs(Protocol):
    """The limits of a namespace."""

    def set(
        self, key: str, most: int | None = None, *, rate: str | None = None, when_full: WhenFull = "queue"
    ) -> JsonRecord:
        """So many runs at once, a rate such as `100/1m`, or both."""

    def all(self) -> list[JsonRecord]: ...
    def remove(self, key: str) -> None: ...


class QueueVerbs(Protocol):
    """The queues of a namespace."""

    def all(self) -> list[JsonRecord]: ...
    def pause(self, queue: str, why: str = "") -> None:
        """Let workers claim nothing from it; what runs goes on."""

    def resume(self, queue: str) -> None: ...
    def drain(self, queue: str, why: str = "") -> None:
        """Let no new runs in until it is resumed."""

    def move(self, queue: str, to: str) -> int:
        """Move the runs that wait to another queue; returns how many."""

    def purge(self, queue: str) -> int:
        """Cancel the runs that wait; returns how many."""


class Administration(Protocol):
    """What a client sets and looks up beside runs."""

    @property
    def schedules(self) -> ScheduleVerbs: ...
    @property
    def limits(self) -> LimitVerbs: ...
    @property
    def queues(self) -> QueueVerbs: ...
    def dead(self, queue: str | None) -> Iterator[str]:
        """The ids of the runs that failed for good, newest first."""


class RedisAdministration:
    """All of it, on Redis."""

    def __init__(self, store: NamespaceStore) -> None:
        from agentq.coordinator.queues.limits import Limits
        from agentq.coordinator.queues.queues import Queues

        self._store = store
        self.schedules = _RedisSchedules(store)
        self.limits = _RedisLimits(Limits(store))
        self.queues = _RedisQueues(Queues(store))

    def dead(self, queue: str | None) -> Iterator[str]:
        from agentq.coordinator.model.lifecycle import State
        from agentq.coordinator.runs.queries import RunFilter, RunQueries

        for run in RunQueries(self._store).all(RunFilter((State.FAILED,), queue)):
            yield run.id


class _RedisSchedules:
    def __init__(self, store: NamespaceStore) -> None:
        self._all = Schedules(store)

    def put(self, name: str, spec: RunSpec, rule: ScheduleRule, overlap: OverlapPolicy) -> JsonRecord:
        return schedule_json(self._all.add(name, rule, spec, overlap=overlap, replace=True))

    def all(self) -> list[JsonRecord]:
        return [schedule_json(each) for each in self._all.all()]

    def get(self, name: str) -> JsonRecord:
        return schedule_json(self._all.get(name))

    def pause(self, name: str, why: str = "") -> JsonRecord:
        return schedule_json(self._all.pause(name, why))

    def resume(self, name: str) -> JsonRecord:
        return schedule_json(self._all.resume(name))

    def run(self, name: str) -> str:
        return self._all.run(name).id

    def remove(self, name: str) -> None:
        self._all.remove(name)


class _RedisLimits:
    def __init__(self, limits: Limits) -> None:
        self._limits = limits

    def set(
        self, key: str, most: int | None = None, *, rate: str | None = None, when_full: WhenFull = "queue"
    ) -> JsonRecord:
        from agentq.coordinator.queues import limits
        from agentq.coordinator.security import tokens

        if when_full not in list(limits.LimitFullPolicy):
            raise Invalid(f"when_full: {when_full!r} is not a choice; there are {', '.join(limits.LimitFullPolicy)}.")
        bucket = None if rate is None else limits.LimitRate(**tokens.parse_rate(str(rate))._asdict())
        self._limits.set(key, most=most, rate=bucket, when_full=limits.LimitFullPolicy(when_full))
        return limit_json(self._limits.get(key))

    def all(self) -> list[JsonRecord]:
        return [limit_json(each) for each in self._limits.all()]

    def remove(self, key: str) -> None:
        self._limits.remove(key)


class _RedisQueues:
    def __init__(self, queues: Queues) -> None:
        self._queues = queues

    def all(self) -> list[JsonRecord]:
        return [queue_json(each) for each in self._queues.all()]

    def pause(self, queue: str, why: str = "") -> None:
        self._queues.pause(queue, why)

    def resume(self, queue: str) -> None:
        self._queues.resume(queue)

    def drain(self, queue: str, why: str = "") -> None:
        self._queues.drain(queue, why)

    def move(self, queue: str, to: str) -> int:
        return self._queues.move(queue, to)

    def purge(self, queue: str) -> int:
        return self._queues.purge(queue, "its queue was purged")
