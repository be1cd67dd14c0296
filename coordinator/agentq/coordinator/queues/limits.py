"""Limits: how much there is of a key that runs name, said by an operator while everything runs.

So many at once, so many units in a time, or nothing until a time. The limits `queue:NAME` and `global` are of every run
of a queue, and of every run, unnamed. Runs that find no room wait in the order of priority and age, and are let in by
the verb that makes room (see `lua/shared/limits.lua`).
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from enum import StrEnum
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from agentq.coordinator.bounds import DUE_AT_MS_MAX, ERROR_CHARACTERS
from agentq.coordinator.errors import Invalid, NotFound, quote_input
from agentq.coordinator.model.field_types import LimitName, LimitUnits, TimeoutMs, check_name
from agentq.coordinator.storage.connection import CommandArgument
from agentq.coordinator.storage.socket_link import parse_script_json
from agentq.coordinator.storage.store import NamespaceStore

HOLDERS_SHOWN = 5
"""Holders of a limit that are named one by one."""


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


_limit_adapter: TypeAdapter[str] = TypeAdapter(LimitName)


class Limits:
    """The limits of one namespace. Each verb is said in every partition, and holds in each by itself."""

    def __init__(self, store: NamespaceStore) -> None:
        self.store = store

    def set(
        self,
        key: str,
        *,
        most: int | None = None,
        rate: LimitRate | None = None,
        when_full: LimitFullPolicy = LimitFullPolicy.QUEUE,
    ) -> None:
        """Say how much there is of a key from now on; who holds more than that keeps it."""
        check_limit(most, rate, when_full)
        bucket: tuple[CommandArgument, ...] = ("", "", "") if rate is None else (rate.units, rate.per_ms, rate.burst)
        self._call("limit/set", check_limit_name(key), "" if most is None else most, *bucket, when_full.value)

    def remove(self, key: str) -> None:
        """A key is not limited any more; whoever waits for it goes on."""
        if "ok" not in self._call("limit/set", check_limit_name(key), "", "", "", "", ""):
            raise NotFound(f"There is no limit {key}; `agentq limit ls` shows those that there are.")

    def shut(self, key: str, until_ms: int, why: str = "") -> None:
        """Let nobody in under a key until a time; who has room goes on."""
        self._call(
            "limit/block_until", check_limit_name(key), min(max(0, until_ms), DUE_AT_MS_MAX), why[:ERROR_CHARACTERS]
        )

    def open(self, key: str) -> None:
        """Let runs in again before the time to which a key is shut."""
        self._call("limit/block_until", check_limit_name(key), 0, "")

    def get(self, key: str) -> LimitRecord:
        """A limit that is set, or shut."""
        (found,) = self.named([key])
        if not found.is_set:
            raise NotFound(f"There is no limit {key}; `agentq limit ls` shows those that there are.")
        return found

    def all(self) -> list[LimitRecord]:
        """Every limit; numbers of all partitions together."""
        return self._list()

    def named(self, keys: Iterable[str]) -> list[LimitRecord]:
        """What there is of these keys, also of those that are not limited."""
        names = [check_limit_name(key) for key in keys]
        return self._list(*names) if names else []

    def _list(self, *names: str) -> list[LimitRecord]:
        found: dict[str, dict[str, Any]] = {}
        for partition in self.store.partitions():
            flat = self.store.call("limit/list", partition, *names)
            for at in range(0, len(flat), 4):
                key, fields, held, waiting = flat[at : at + 4]
                stored = found.setdefault(
                    key, {"key": key, "held": 0, "waiting": 0, **_parse_rate(parse_script_json(fields))}
                )
                stored["held"], stored["waiting"] = stored["held"] + held, stored["waiting"] + waiting
        return [_parse_limit(found[key]) for key in sorted(found)]

    def holders(self, key: str, most: int = HOLDERS_SHOWN) -> list[str]:
        """Some of the runs that have room under a key, of each partition the oldest first."""
        partitions = self.store.partitions()
        return [run for partition in partitions for run in self.partition_holders(partition, key, most)][:most]

    def partition_holders(self, partition: int, key: str, most: int) -> list[str]:
        """The same, of one partition."""
        name = self.store.key(partition, "limit_holders", key)
        ids: list[str] = self.store.connection.command("ZRANGE", name, 0, most - 1)
        return ids

    def place(self, partition: int, key: str, run_id: str) -> int | None:
        """How many stand before a run in the line of a key."""
        rank = self.store.connection.command("ZRANK", self.store.key(partition, "limit_waiters", key), run_id)
        return None if rank is None else int(rank)

    def _call(self, script: str, *words: CommandArgument) -> list[str]:
        replies = [str(self.store.call(script, partition, *words)) for partition in self.store.partitions()]
        for reply in replies:
            assert reply in ("ok", "not_found"), reply
        return replies


def check_limit_name(key: str) -> str:
    """The key of a limit, or what is wrong with it in one sentence."""
    return check_name(_limit_adapter, key, "limit")


def check_limit(most: int | None, rate: LimitRate | None, when_full: LimitFullPolicy) -> None:
    """Refuse what says nothing, or what cannot be kept."""
    if most is None and rate is None:
        raise Invalid("A limit needs a number of runs, or a rate.")
    if most is not None and not (type(most) is int and 0 <= most <= 1_000_000_000):
        raise Invalid(f"A limit is a whole number of runs from 0 to 1000000000, such as 3, not {quote_input(most)}.")
    if when_full is LimitFullPolicy.CANCEL_RUNNING and not most:
        raise Invalid("A limit that cancels what runs needs a number of runs, of 1 or more.")


def warn_unset_limits(limits: Limits, keys: Iterable[str]) -> dict[str, str]:
    """A sentence for each limit that nobody has set: most of the time its name has a typing error."""
    unset = [found.key for found in limits.named(keys) if not found.is_set]
    known = [found.key for found in limits.all() if found.is_set] if unset else []
    return {key: f"There is no limit {key}, so it limits nothing; {_suggest_limit(key, known)}" for key in unset}


def _suggest_limit(key: str, known: Iterable[str]) -> str:
    near = get_close_matches(key, list(known), n=1)
    return f"did you mean {near[0]}?" if near else f"`agentq limit set {key} 1` sets it."


def _parse_limit(stored: dict[str, Any]) -> LimitRecord:
    try:
        return LimitRecord.model_validate(stored)
    except ValidationError:
        known = {name: stored[name] for name in ("key", "held", "waiting")}
        return LimitRecord(**known, shut_why="its record is damaged; set or remove it")


def _parse_rate(stored: dict[str, str]) -> dict[str, Any]:
    rate = {name: stored.pop(name) for name in ("units", "per_ms", "burst") if name in stored}
    return {**stored, "rate": rate or None}
