"""What an operator says of queues and limits, while everything runs: pause, resume, weigh, limit, shut, open.

A limit says how much there is of a key that runs name: so many at once, so many units in a time, or nothing until a
time. The limits `queue:NAME` and `global` are of every run of a queue, and of every run, unnamed. Runs that find no
room wait in the order of priority and age, and are let in by whoever makes room (see `lua/shared/limits.lua`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from agentq.coordinator.bounds import DUE_AT_MS_MAX, ERROR_CHARACTERS
from agentq.coordinator.errors import Invalid, NotFound, quote_input
from agentq.coordinator.model.field_types import Label, LimitName, LimitUnits, Name, TimeoutMs, describe_error
from agentq.coordinator.model.lifecycle import QUEUED_STATES, State
from agentq.coordinator.storage.connection import CommandArgument
from agentq.coordinator.storage.socket_link import pairs_to_dict, parse_script_json
from agentq.coordinator.storage.store import NamespaceStore

ALL_QUEUES = "*"


class LimitFullPolicy(StrEnum):
    """What becomes of a run that finds no room at once."""

    QUEUE = "queue"
    CANCEL_NEWEST = "cancel_newest"
    CANCEL_RUNNING = "cancel_running"
    KEEP_LATEST = "keep_latest"


class LimitRate(BaseModel):
    """So many units in a time; `burst` is how many may come at once after a quiet time."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    units: LimitUnits
    per_ms: TimeoutMs
    burst: LimitUnits


class LimitRecord(BaseModel):
    """What there is of a key, how much of it is taken, and who waits."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)

    key: str
    max: Annotated[int, Field(ge=0)] | None = None
    rate: LimitRate | None = None
    when_full: LimitFullPolicy = LimitFullPolicy.QUEUE
    shut_until_ms: int | None = None
    shut_why: str = ""
    held: int
    waiting: int

    @property
    def is_set(self) -> bool:
        """Whether there is a limit, and not only runs that name one."""
        return self.max is not None or self.rate is not None or self.shut_until_ms is not None


@dataclass(frozen=True, slots=True)
class QueuePause:
    """Since when nothing is claimed from a queue, and why."""

    queue: str
    at_ms: int
    why: str


_limit_adapter: TypeAdapter[str] = TypeAdapter(LimitName)
_queue_adapter: TypeAdapter[str] = TypeAdapter(Name)
_label_adapter: TypeAdapter[str] = TypeAdapter(Label)


class QueueControls:
    """The operator's verbs of one namespace. Each is said in every partition, and holds in each by itself."""

    def __init__(self, store: NamespaceStore) -> None:
        self.store = store

    # ---- queues

    def pause(self, queue: str, why: str = "") -> None:
        """Claim nothing from a queue, or with `*` from any; what is held goes on."""
        self._say("queue/pause", _check_queue(queue), why[:ERROR_CHARACTERS])

    def resume(self, queue: str) -> None:
        """Let a queue go on, or with `*` all that were not paused by name."""
        if "ok" not in self._say("queue/resume", _check_queue(queue)):
            what = "All queues together are" if queue == ALL_QUEUES else f"The queue {queue} is"
            raise NotFound(f"{what} not paused; `agentq queue ls` shows what is.")

    def drain(self, queue: str, why: str = "") -> None:
        """Let no new runs into a queue until it is resumed; what is there goes on."""
        self._say("queue/close_intake", _validate(_queue_adapter, queue, "queue"), why[:ERROR_CHARACTERS])

    def paused(self) -> dict[str, QueuePause]:
        """What is paused, by queue; `*` is all of them."""
        return self._noted("paused")

    def drained(self) -> dict[str, QueuePause]:
        """The queues that take no new runs."""
        return self._noted("intake_closed")

    def purge(self, queue: str, why: str, states: Iterable[State] = QUEUED_STATES) -> int:
        """Cancel what waits in a queue, in calls of bounded size; returns how many runs that were."""
        return sum(
            self._work_off("queue/purge", _validate(_queue_adapter, queue, "queue"), state, why) for state in states
        )

    def move(self, queue: str, target: str) -> int:
        """Move what waits in a queue to another; returns how many runs that were."""
        source, target = (_validate(_queue_adapter, name, "queue") for name in (queue, target))
        if source == target:
            raise Invalid(f"Runs of {queue} are in that queue already; name another.")
        return sum(self._work_off("queue/move_runs", source, state, target) for state in QUEUED_STATES)

    def _work_off(self, script: str, queue: str, state: State, word: str) -> int:
        done = 0
        for partition in self.store.partitions():
            more = True
            while more:
                number, more = self.store.call(script, partition, queue, state.value, word)
                done += number
        return done

    def _noted(self, key: str) -> dict[str, QueuePause]:
        found: dict[str, QueuePause] = {}
        for partition in self.store.partitions():
            flat = self.store.connection.command("HGETALL", self.store.key(partition, key))
            for queue, told in pairs_to_dict(flat).items():
                found[queue] = _parse_pause(queue, told)
        return found

    def weigh(self, queue: str, fair_key: str, weight: float) -> None:
        """Give a key so many turns in a queue where others get one; for the runs that come from now on."""
        if not 0.01 <= weight <= 1000:
            raise Invalid(f"A weight is a number from 0.01 to 1000, not {weight}.")
        self._say(
            "queue/set_weight",
            _validate(_queue_adapter, queue, "queue"),
            _validate(_label_adapter, fair_key, "fair key"),
            f"{weight:g}",
        )

    # ---- limits

    def limit(
        self,
        key: str,
        *,
        most: int | None = None,
        rate: LimitRate | None = None,
        when_full: LimitFullPolicy = LimitFullPolicy.QUEUE,
    ) -> None:
        """Say how much there is of a key from now on; who holds more than that keeps it."""
        if most is None and rate is None:
            raise Invalid("A limit needs a number of runs, or a rate.")
        if most is not None and not (type(most) is int and 0 <= most <= 1_000_000_000):
            raise Invalid(
                f"A limit is a whole number of runs from 0 to 1000000000, such as 3, not {quote_input(most)}."
            )
        if when_full is LimitFullPolicy.CANCEL_RUNNING and not most:
            raise Invalid("A limit that cancels what runs needs a number of runs, of 1 or more.")
        bucket: tuple[CommandArgument, ...] = ("", "", "") if rate is None else (rate.units, rate.per_ms, rate.burst)
        self._say("limit/set", _check_limit(key), "" if most is None else most, *bucket, when_full.value)

    def unlimit(self, key: str) -> None:
        """A key is not limited any more; whoever waits for it goes on."""
        if "ok" not in self._say("limit/set", _check_limit(key), "", "", "", "", ""):
            raise NotFound(f"There is no limit {key}; `agentq limit ls` shows those that there are.")

    def shut(self, key: str, until_ms: int, why: str = "") -> None:
        """Let nobody in under a key until a time; who has room goes on."""
        self._say("limit/block_until", _check_limit(key), min(max(0, until_ms), DUE_AT_MS_MAX), why[:ERROR_CHARACTERS])

    def open(self, key: str) -> None:
        """Open a gate before its time."""
        self._say("limit/block_until", _check_limit(key), 0, "")

    def limits(self, keys: Iterable[str] = ()) -> list[LimitRecord]:
        """What is limited, or what there is of these keys; numbers of all partitions together."""
        names = [_check_limit(key) for key in keys]
        found: dict[str, dict[str, Any]] = {}
        for partition in self.store.partitions():
            flat = self.store.call("limit/list", partition, *names)
            for at in range(0, len(flat), 4):
                key, fields, held, waiting = flat[at : at + 4]
                told = found.setdefault(
                    key, {"key": key, "held": 0, "waiting": 0, **_parse_rate(parse_script_json(fields))}
                )
                told["held"], told["waiting"] = told["held"] + held, told["waiting"] + waiting
        return [_parse_limit(found[key]) for key in sorted(found)]

    def holders(self, partition: int, key: str, most: int) -> list[str]:
        """Some of the runs that have room under a key, the oldest first."""
        name = self.store.key(partition, "limit_holders", key)
        ids: list[str] = self.store.connection.command("ZRANGE", name, 0, most - 1)
        return ids

    def place(self, partition: int, key: str, run_id: str) -> int | None:
        """How many stand before a run in the line of a key."""
        rank = self.store.connection.command("ZRANK", self.store.key(partition, "limit_waiters", key), run_id)
        return None if rank is None else int(rank)

    def _say(self, script: str, *words: CommandArgument) -> list[str]:
        replies = [str(self.store.call(script, partition, *words)) for partition in self.store.partitions()]
        for reply in replies:
            assert reply in ("ok", "not_found", "not_paused"), reply
        return replies


def warn_unset_limits(flow: QueueControls, keys: Iterable[str]) -> list[str]:
    """A sentence for each limit that nobody has set: most of the time its name has a typing error."""
    unset = [found.key for found in flow.limits(keys) if not found.is_set]
    known = [found.key for found in flow.limits() if found.is_set] if unset else []
    return [f"There is no limit {key}, so it limits nothing; {_suggest_limit(key, known)}" for key in unset]


def _suggest_limit(key: str, known: Iterable[str]) -> str:
    near = get_close_matches(key, list(known), n=1)
    return f"did you mean {near[0]}?" if near else f"`agentq limit set {key} 1` sets it."


def _parse_pause(queue: str, told: str) -> QueuePause:
    """One that is damaged holds all the same."""
    at_ms, _, why = told.partition(" ")
    if not at_ms.isdecimal():
        return QueuePause(queue, 0, "its record is damaged; resume the queue")
    return QueuePause(queue, int(at_ms), why)


def _parse_limit(told: dict[str, Any]) -> LimitRecord:
    try:
        return LimitRecord.model_validate(told)
    except ValidationError:
        known = {name: told[name] for name in ("key", "held", "waiting")}
        return LimitRecord(**known, shut_why="its record is damaged; set or remove it")


def _parse_rate(told: dict[str, str]) -> dict[str, Any]:
    rate = {name: told.pop(name) for name in ("units", "per_ms", "burst") if name in told}
    return {**told, "rate": rate or None}


def _check_queue(name: str) -> str:
    return name if name == ALL_QUEUES else _validate(_queue_adapter, name, "queue")


def _check_limit(key: str) -> str:
    return _validate(_limit_adapter, key, "limit")


def _validate(adapter: TypeAdapter[str], text: str, what: str) -> str:
    try:
        return adapter.validate_python(text)
    except ValidationError as error:
        raise Invalid(f"{quote_input(text)} is not the name of a {what}: {describe_error(error)}") from error
