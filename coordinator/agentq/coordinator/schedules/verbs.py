"""The records and verbs of schedules.

A schedule lives in one partition, determined by its name, with the runs that it makes. The scheduler
(`duties/scheduler.py`) fires its ticks. Verbs here compute from a schedule as it was read, and the script writes only
if the revision is unchanged; otherwise they read and compute again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum
from itertools import count
from typing import Any
from zlib import crc32

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from pydantic_core import to_json

from agentq.coordinator.bounds import ERROR_CHARACTERS
from agentq.coordinator.errors import Duplicate, Invalid, NotFound, Stale, refusal_error
from agentq.coordinator.model.field_types import Name, check_name, describe_error
from agentq.coordinator.model.ids import new_run_id
from agentq.coordinator.model.spec import RunSpec, parse_spec
from agentq.coordinator.runs.verbs import RunVerbs, SubmitReceipt
from agentq.coordinator.schedules.cron import ScheduleRule, load_timezone, parse_cron
from agentq.coordinator.storage.connection import CommandArgument
from agentq.coordinator.storage.socket_link import pairs_to_dict
from agentq.coordinator.storage.store import NamespaceStore

UPDATE_ATTEMPTS = 10
"""How often a change is tried again while other callers change the schedule."""
TIMING_FIELDS = {"after": "waits for other runs", "due_at_ms": "has a time of its own", "delay_ms": "has a delay"}
"""Fields of a spec that decide when a run begins, which the schedule decides instead."""


class OverlapPolicy(StrEnum):
    """What happens at a tick while an earlier run of the schedule has not ended."""

    SKIP = "skip"
    QUEUE = "queue"
    CANCEL_OLD = "cancel_old"
    ALLOW = "allow"


class ScheduleState(StrEnum):
    """The state of a schedule. `faulty`: its next step cannot be computed, and is tried again every minute."""

    ACTIVE = "active"
    PAUSED = "paused"
    FAULTY = "faulty"
    ENDED = "ended"


class ScheduleHistoryEntry(BaseModel):
    """What happened to a tick, to several missed ones up to `before_ms`, or to a run triggered by a client."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)

    what: str
    at_ms: int
    tick_ms: int | None = None
    before_ms: int | None = None
    run: str | None = None
    why: str | None = None


class ScheduleRecord(BaseModel):
    """A schedule. Rule and spec are None where they cannot be read."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    name: str
    state: ScheduleState
    revision: str
    rule: ScheduleRule | None
    spec: RunSpec | None
    overlap: str
    next_at_ms: int | None
    last_at_ms: int | None
    created_at_ms: int | None
    paused_at_ms: int | None
    ended_at_ms: int | None
    why: str
    """Why it is paused or faulty."""
    made_by: str
    """The token that created or replaced it; empty without one."""
    live: list[str]
    """Its runs that have not ended, oldest first."""

    def coming(self, number: int, now_ms: int) -> list[int]:
        """Its next ticks; none while it is paused."""
        ticks: list[int] = []
        if self.state is ScheduleState.ACTIVE and self.rule is not None and self.next_at_ms is not None:
            tick = self.rule.step(self.name, self.next_at_ms, now_ms)
            following = tick.tick_ms if tick.tick_ms is not None else tick.next_ms
            while following is not None and len(ticks) < number:
                ticks.append(following)
                following = self.rule.after(following)
        return ticks


_name_adapter: TypeAdapter[str] = TypeAdapter(Name)


class Schedules:
    """The schedules of one namespace."""

    def __init__(self, store: NamespaceStore) -> None:
        self.store = store
        self._queue = RunVerbs(store)

    # ---- changing

    def add(
        self,
        name: str,
        rule: ScheduleRule,
        spec: RunSpec,
        *,
        overlap: OverlapPolicy = OverlapPolicy.SKIP,
        replace: bool = False,
        operation: str | None = None,
    ) -> ScheduleRecord:
        """Add a schedule. With `replace`, an existing one is replaced; without, it raises `Duplicate`.

        A replaced schedule keeps its history and its pause; an unchanged interval keeps its start.
        """
        self._check(name, spec)
        revision = operation or self.store.nonce()
        # A run that waits for an earlier run of the same schedule runs whether that one completes or not.
        spec = spec.model_copy(update={"on_failed": "run"})
        run_arguments = (spec.lane, spec.to_wire(), to_json(spec.to_submit_options()))

        def put() -> str:
            before = self._read(name) if replace else None
            started = self._with_start(rule, before.rule if before else None)
            next_ms = self._first(name, started, before)
            revisions = ("" if before is None else before.revision, revision)
            rule_arguments = (overlap.value, started.model_dump_json(exclude_defaults=True))
            return self._call(
                "schedule/put",
                name,
                *revisions,
                *rule_arguments,
                *run_arguments,
                next_ms,
                started.wake_ms(name, next_ms),
            )

        if self._until_written(name, put) == "exists":
            raise Duplicate(f"There is a schedule {name} already; `--replace` puts this one in its place.")
        return self.get(name)

    def pause(self, name: str, why: str = "") -> ScheduleRecord:
        """Stop the ticks until the schedule is resumed; its runs continue."""
        self._raise_refusal(name, self._call("schedule/pause", check_schedule_name(name), why[:ERROR_CHARACTERS]))
        return self.get(name)

    def resume(self, name: str) -> ScheduleRecord:
        """Resume a schedule. Ticks missed meanwhile are run only if its rule catches up."""

        def resume() -> str:
            found = self.get(name)
            expected, next_ms = found.next_at_ms, found.next_at_ms
            if found.rule is None or expected is None:
                raise Invalid(f"The schedule {name} cannot be read: {found.why}; put another in its place.")
            now_ms = self.store.time_ms()
            if found.rule.missed == "none" and expected <= now_ms:
                next_ms = found.rule.after(now_ms)
            wake_ms: CommandArgument = "" if next_ms is None else found.rule.wake_ms(name, next_ms)
            return self._call(
                "schedule/resume", name, found.revision, expected, "" if next_ms is None else next_ms, wake_ms
            )

        self._until_written(name, resume)
        return self.get(name)

    def run(self, name: str, *, run_id: str | None = None) -> SubmitReceipt:
        """Submit a run of it now, regardless of its next tick, overlap policy and pause."""
        run_id = run_id or new_run_id(self.partition(check_schedule_name(name)), self.store.time_ms())
        word = self._call("schedule/trigger", name, run_id)
        if word.startswith("exists "):
            return SubmitReceipt(word.removeprefix("exists "), created=False)
        self._raise_refusal(name, word)
        return SubmitReceipt(run_id, created=True)

    def remove(self, name: str) -> None:
        """Remove a schedule and its history; its runs continue."""
        self.get(name)
        self._call("schedule/delete", name)

    # ---- reading

    def partition(self, name: str) -> int:
        """The partition of a schedule and its runs."""
        return crc32(name.encode()) % self.store.keyspace.partitions

    def get(self, name: str) -> ScheduleRecord:
        """Return a schedule."""
        found = self._read(check_schedule_name(name))
        if found is None:
            raise NotFound(f"There is no schedule {name[:80]}; `agentq schedule ls` shows those that there are.")
        return found

    def all(self) -> Iterator[ScheduleRecord]:
        """Every schedule, by name."""
        self.store.guard()
        names: list[str] = []
        for partition in self.store.partitions():
            names += self.store.connection.command("ZRANGE", self.store.key(partition, "schedules"), 0, -1)
        yield from (found for found in map(self._read, sorted(names)) if found is not None)

    def history(self, name: str, most: int = 20) -> list[ScheduleHistoryEntry]:
        """The history of its ticks, the newest first."""
        key = self.store.key(self.partition(name), "schedule_history", check_schedule_name(name))
        entries: list[str] = self.store.connection.command("LRANGE", key, 0, most - 1)
        return [ScheduleHistoryEntry.model_validate_json(entry) for entry in entries]

    def _read(self, name: str) -> ScheduleRecord | None:
        self.store.guard()
        partition, command = self.partition(name), self.store.connection.command
        key = self.store.key(partition, "schedule", name)
        if command("TYPE", key) not in ("hash", "none"):
            return _parse_schedule(name, {"fault": "its key holds something else"}, [])
        fields = pairs_to_dict(command("HGETALL", key))
        live = command("ZRANGE", self.store.key(partition, "schedule_runs", name), 0, -1)
        return _parse_schedule(name, fields, live) if fields else None

    # ---- how it is done

    def _with_start(self, rule: ScheduleRule, before: ScheduleRule | None) -> ScheduleRule:
        """The rule with the start of its interval: now, or the old start if the interval is unchanged."""
        if rule.every_ms is None or rule.start_ms is not None:
            return rule
        same = before is not None and rule.every_ms == before.every_ms
        return rule.model_copy(update={"start_ms": before.start_ms if before and same else self.store.time_ms()})

    def _first(self, name: str, rule: ScheduleRule, before: ScheduleRecord | None) -> int:
        """The first tick from now on; the old next tick if the times are unchanged."""
        now_ms = self.store.time_ms()
        if before is not None and before.next_at_ms is not None and _rule_times(rule) == _rule_times(before.rule):
            return before.next_at_ms
        tick = rule.after(max(now_ms, before.last_at_ms or 0) if before else now_ms)
        if tick is None:
            raise Invalid(f"No tick of the schedule {name} is still to come: {rule.describe()}.")
        return tick

    def _check(self, name: str, spec: RunSpec) -> None:
        check_schedule_name(name)
        for field, sentence in TIMING_FIELDS.items():
            if getattr(spec, field):
                raise Invalid(f"The run of a schedule {sentence}; leave that to the schedule.")
        home = self._queue.home(spec)
        if home is not None and home != self.partition(name):
            other = next(f"{name}-{number}" for number in count(2) if self.partition(f"{name}-{number}") == home)
            raise Invalid(
                f"The schedule {name} lives in another partition than the session, plan or key of its runs; "
                f"name it {other}, which lives there."
            )

    def _until_written(self, name: str, change: Callable[[], str]) -> str:
        """Repeat a change until the schedule was not changed between its read and its write."""
        for _ in range(UPDATE_ATTEMPTS):
            word = change()
            if word != "stale":
                self._raise_refusal(name, word)
                return word
        raise Stale(f"Other callers keep changing the schedule {name}; nothing was changed. Try again.")

    def _call(self, script: str, name: str, *words: CommandArgument) -> str:
        return str(self.store.call(script, self.partition(name), name, *words))

    def _raise_refusal(self, name: str, word: str) -> None:
        refused = refusal_error(word, f"schedule {name}")
        if refused is not None:
            raise refused


def check_schedule_name(name: str) -> str:
    """Validate the name of a schedule; raises `Invalid` with one sentence."""
    return check_name(_name_adapter, name, "schedule")


def make_schedule_rule(**fields: Any) -> ScheduleRule:
    """Make a rule that has ticks; raises `Invalid` with one sentence."""
    try:
        rule = ScheduleRule(**fields)
    except ValidationError as error:
        raise Invalid(describe_error(error)) from error
    load_timezone(rule.tz)
    if rule.cron is not None:
        parse_cron(rule.cron)
        if rule.after(0) is None:
            raise Invalid(f"{rule.cron!r} is a time that never comes.")
    return rule


def _rule_times(rule: ScheduleRule | None) -> tuple[object, ...]:
    return () if rule is None else (rule.cron, rule.tz, rule.every_ms, rule.start_ms, rule.at_ms, rule.until_ms)


def _parse_schedule(name: str, fields: dict[str, str], live: list[str]) -> ScheduleRecord:
    """Parse a schedule from its hash, as far as that can be read."""
    rule, spec, fault = None, None, fields.get("fault", "")
    try:
        rule = ScheduleRule.model_validate_json(fields.get("rule", ""))
        spec = parse_spec(fields["spec"], fields["lane"])
    except Exception as error:  # noqa: BLE001 - a damaged record must be shown, whatever the damage
        fault = fault or f"its record is damaged ({type(error).__name__})"

    def number(field: str) -> int | None:
        return int(fields[field]) if fields.get(field, "").isdigit() else None

    paused, ended = number("paused_at_ms"), number("ended_at_ms")
    states = ((ended, ScheduleState.ENDED), (fault, ScheduleState.FAULTY), (paused, ScheduleState.PAUSED))
    return ScheduleRecord(
        name=name,
        state=next((state for holds, state in states if holds), ScheduleState.ACTIVE),
        revision=fields.get("revision", ""),
        rule=rule,
        spec=spec,
        overlap=fields.get("overlap", ""),
        next_at_ms=number("next_at_ms"),
        last_at_ms=number("last_at_ms"),
        created_at_ms=number("created_at_ms"),
        paused_at_ms=paused,
        ended_at_ms=ended,
        why=fault or fields.get("paused_why", ""),
        made_by=fields.get("made_by", ""),
        live=live,
    )
