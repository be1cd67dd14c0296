"""Schedules, limits, queues and dead letters: what is set and looked up beside runs.

Records are dicts as the HTTP API has them, and as `agentq … --json` prints them, whichever way a client goes.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypedDict

from agentq.coordinator.errors import Invalid
from agentq.coordinator.run import RunSpec
from agentq.coordinator.schedules import Overlap, Schedules, rule_of
from agentq.coordinator.shapes import limit_record, queue_record, schedule_record
from agentq.sdk.options import Span, span_ms

if TYPE_CHECKING:
    from agentq.coordinator.flow import Flow
    from agentq.coordinator.rule import Rule
    from agentq.coordinator.store import Store

Record = dict[str, Any]
WhenFull = Literal["queue", "cancel_newest", "cancel_running", "keep_latest"]


class Timing(TypedDict, total=False):
    """When a schedule makes runs: by one of `cron`, `every` and `at`; and what it does about ticks that it missed."""

    cron: str
    tz: str
    every: Span
    at: datetime
    until: datetime
    jitter: Span
    missed: Literal["latest", "all"]
    catch_up: Span
    overlap: Literal["skip", "queue", "cancel_old", "allow"]


_SPANS, _TIMES = ("every", "jitter", "catch_up"), ("at", "until")


def rule_in(timing: Timing) -> tuple[Rule, Overlap]:
    """The rule of a schedule, and what becomes of a tick whose last run has not ended."""
    given: dict[str, Any] = dict(timing)
    unknown = given.keys() - Timing.__annotations__.keys()
    if unknown:
        raise Invalid(f"There is no option {sorted(unknown)[0]!r}; there are {', '.join(Timing.__annotations__)}.")
    if sum(kind in given for kind in ("cron", "every", "at")) != 1:
        raise Invalid("A schedule needs one of cron, every and at, as in task.schedule('nightly', cron='30 2 * * *').")
    overlap = given.pop("overlap", "skip")
    if overlap not in list(Overlap):
        raise Invalid(f"overlap: {overlap!r} is not a policy; there are {', '.join(Overlap)}.")
    fields = {f"{name}_ms": span_ms(given.pop(name)) for name in _SPANS if name in given}
    fields |= {f"{name}_ms": round(given.pop(name).timestamp() * 1000) for name in _TIMES if name in given}
    return rule_of(**fields, **given), Overlap(overlap)


class ScheduleVerbs(Protocol):
    """The schedules of a namespace."""

    def put(self, name: str, spec: RunSpec, rule: Rule, overlap: Overlap) -> Record: ...
    def all(self) -> list[Record]: ...
    def get(self, name: str) -> Record: ...
    def pause(self, name: str, why: str = "") -> Record:
        """No tick comes until it is resumed; the runs that it made go on."""

    def resume(self, name: str) -> Record: ...
    def run(self, name: str) -> str:
        """Make a run of it now, whatever its rule says; returns its id."""

    def remove(self, name: str) -> None:
        """With its history; the runs that it made go on."""


class LimitVerbs(Protocol):
    """The limits of a namespace."""

    def set(
        self, key: str, most: int | None = None, *, rate: str | None = None, when_full: WhenFull = "queue"
    ) -> Record:
        """So many runs at once, a rate such as `100/1m`, or both."""

    def all(self) -> list[Record]: ...
    def remove(self, key: str) -> None: ...


class QueueVerbs(Protocol):
    """The queues of a namespace."""

    def all(self) -> list[Record]: ...
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


class DirectAdministration:
    """All of it, on Redis."""

    def __init__(self, store: Store) -> None:
        from agentq.coordinator.flow import Flow

        self._store = store
        self.schedules = _Schedules(store)
        self.limits = _Limits(Flow(store))
        self.queues = _Queues(store, Flow(store))

    def dead(self, queue: str | None) -> Iterator[str]:
        from agentq.coordinator.lifecycle import State
        from agentq.coordinator.records import Filter, Records

        for run in Records(self._store).all(Filter((State.FAILED,), queue)):
            yield run.id


class _Schedules:
    def __init__(self, store: Store) -> None:
        self._all = Schedules(store)

    def put(self, name: str, spec: RunSpec, rule: Rule, overlap: Overlap) -> Record:
        return schedule_record(self._all.add(name, rule, spec, overlap=overlap, replace=True))

    def all(self) -> list[Record]:
        return [schedule_record(each) for each in self._all.all()]

    def get(self, name: str) -> Record:
        return schedule_record(self._all.get(name))

    def pause(self, name: str, why: str = "") -> Record:
        return schedule_record(self._all.pause(name, why))

    def resume(self, name: str) -> Record:
        return schedule_record(self._all.resume(name))

    def run(self, name: str) -> str:
        return self._all.run(name).id

    def remove(self, name: str) -> None:
        self._all.remove(name)


class _Limits:
    def __init__(self, flow: Flow) -> None:
        self._flow = flow

    def set(
        self, key: str, most: int | None = None, *, rate: str | None = None, when_full: WhenFull = "queue"
    ) -> Record:
        from agentq.coordinator import flow, tokens

        if when_full not in list(flow.WhenFull):
            raise Invalid(f"when_full: {when_full!r} is not a choice; there are {', '.join(flow.WhenFull)}.")
        bucket = None if rate is None else flow.Rate(**tokens.rate_of(rate)._asdict())
        self._flow.limit(key, most=most, rate=bucket, when_full=flow.WhenFull(when_full))
        return limit_record(self._flow.limits([key])[0])

    def all(self) -> list[Record]:
        return [limit_record(each) for each in self._flow.limits()]

    def remove(self, key: str) -> None:
        self._flow.unlimit(key)


class _Queues:
    def __init__(self, store: Store, flow: Flow) -> None:
        self._store, self._flow = store, flow

    def all(self) -> list[Record]:
        from agentq.coordinator.overview import Overview

        return [queue_record(each) for each in Overview(self._store).queues()]

    def pause(self, queue: str, why: str = "") -> None:
        self._flow.pause(queue, why)

    def resume(self, queue: str) -> None:
        self._flow.resume(queue)

    def drain(self, queue: str, why: str = "") -> None:
        self._flow.drain(queue, why)

    def move(self, queue: str, to: str) -> int:
        return self._flow.move(queue, to)

    def purge(self, queue: str) -> int:
        return self._flow.purge(queue, "its queue was purged")
