"""Reading: runs one by one, in lists and in numbers, and workers. Nothing here changes anything."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, JsonValue

from agentq.coordinator.connection import Word
from agentq.coordinator.errors import Invalid, NotFound
from agentq.coordinator.identity import LENGTH, check_run_id, partition_of, run_id_prefix
from agentq.coordinator.life import Run, Summary
from agentq.coordinator.lifecycle import OutcomeClass, State
from agentq.coordinator.limits import CREW_A_CALL, LIST_A_CALL
from agentq.coordinator.link import fields_of
from agentq.coordinator.run import lane_parts
from agentq.coordinator.store import Store

CANDIDATES = 10
"""Runs that are named when the beginning of an id fits several."""

_BEGINNING = re.compile(r"run_[0-9a-z]+")
_SUMMARY = ("id", "state", "lane", "attempt", "worker", "reason", "submitted_at_ms")


@dataclass(frozen=True, slots=True)
class Page:
    """Part of a list. With `cursor` the next call goes on; without one, this was all."""

    runs: list[Summary]
    cursor: str | None


@dataclass(frozen=True, slots=True)
class Filter:
    """Which runs to list. Times are those of the ids: when the run was made, by its maker's clock."""

    states: tuple[State, ...] = tuple(State)
    queue: str | None = None
    queues: tuple[str, ...] = ()
    """Only those of these queues; of all, if there are none."""
    plan: str | None = None
    session: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    class_: OutcomeClass | None = None
    """Only those that ended with this class; with it, and with the two times of the end, pages can be short."""
    ended_since_ms: int | None = None
    ended_until_ms: int | None = None


class Described(BaseModel):
    """How a worker described itself, as far as this version understands it."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)

    id: str
    queues: tuple[str, ...]
    labels: dict[str, str] = {}
    slots: int = 1
    only_matching: bool = False
    only_agents: bool = False
    about: dict[str, JsonValue] = {}


class WorkerRecord(BaseModel):
    """A worker as the server knows it."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    id: str
    partition: int
    state: str
    epoch: str
    lease_until_ms: int
    seen_at_ms: int
    missing_at_ms: int | None
    identity: Described
    runs: list[str]


class Records:
    """The reading side of a namespace."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def get(self, run_id: str) -> Run:
        """One run, whole."""
        key = self.store.key(partition_of(run_id), "run", run_id)
        fields = self._hash(key)
        if not fields:
            raise NotFound(f"There is no run {run_id}; it may have been forgotten after its time.")
        return Run.from_hash(run_id, fields)

    def find(self, text: str) -> str:
        """The id that `text` is, or that it is the only beginning of, with or without `run_`."""
        beginning = text.strip().lower()
        beginning = beginning if beginning.startswith("run_") else f"run_{beginning}"
        if len(beginning) >= LENGTH or not _BEGINNING.fullmatch(beginning):
            check_run_id(beginning if len(beginning) == LENGTH else text)
            return beginning
        # No id has a brace, and every digit sorts before one.
        runs = self._page(Filter(), f"{beginning}{{", beginning, CANDIDATES + 1).runs
        if not runs:
            raise NotFound(f"There is no run whose id begins with {beginning}; `agentq ls` shows those that there are.")
        if len(runs) > 1:
            more = " and more" if len(runs) > CANDIDATES else ""
            names = ", ".join(run.id for run in runs[:CANDIDATES])
            raise Invalid(f"Several runs have an id that begins with {beginning}: {names}{more}; write more of it.")
        return runs[0].id

    def needs(self, run_id: str, most: int = 100) -> list[str]:
        """Some of the runs that a blocked run still waits for."""
        key = self.store.key(partition_of(run_id), "needs", run_id)
        return sorted(self.store.connection.command("SRANDMEMBER", key, most))

    def children(self, run_id: str, most: int = 100) -> tuple[int, list[str]]:
        """How many live children a run has, and some of them, the oldest first."""
        key, command = self.store.key(partition_of(run_id), "children", run_id), self.store.connection.command
        return int(command("ZCARD", key)), list(command("ZRANGE", key, 0, most - 1))

    def page(self, which: Filter = Filter(), *, limit: int = 100, cursor: str | None = None) -> Page:
        """A page of runs, newest first."""
        if not 1 <= limit <= LIST_A_CALL:
            raise Invalid(f"A page has 1 to {LIST_A_CALL} runs, not {limit}.")
        if cursor is not None and not _BEGINNING.fullmatch(cursor):
            raise Invalid("cursor: this is none that a list of runs has given.")
        until = "" if which.until_ms is None else run_id_prefix(which.until_ms)
        since = "" if which.since_ms is None else run_id_prefix(which.since_ms)
        return self._page(which, min(cursor, until) if cursor and until else cursor or until, since, limit)

    def _page(self, which: Filter, before: str, since: str, limit: int) -> Page:
        queues = (which.queue,) if which.queue is not None else which.queues or ("*",)
        rows = [word for queue in queues for state in which.states for word in (queue, state.value)]
        ended = (which.class_ or "", _said(which.ended_since_ms), _said(which.ended_until_ms))
        words: tuple[Word, ...] = (which.plan or "", which.session or "", before, since, limit, *ended, *rows)
        pages = [self.store.call("list", partition, *words) for partition in self.store.partitions()]
        return _merged(pages, limit)

    def all(self, which: Filter = Filter()) -> Iterator[Summary]:
        """Every run, newest first, page by page."""
        cursor: str | None = None
        while True:
            page = self.page(which, limit=LIST_A_CALL, cursor=cursor)
            yield from page.runs
            cursor = page.cursor
            if cursor is None:
                return

    def count(self, states: Iterable[State] = tuple(State)) -> dict[str, dict[State, int]]:
        """How many runs each queue has in each state."""
        counts: dict[str, dict[State, int]] = {}
        names = [state.value for state in states]
        for partition in self.store.partitions():
            flat = self.store.call("count", partition, *names)
            for at in range(0, len(flat), 3):
                queue = counts.setdefault(flat[at], {})
                state = State(flat[at + 1])
                queue[state] = queue.get(state, 0) + flat[at + 2]
        return counts

    def workers(self) -> list[WorkerRecord]:
        """Every registered worker, in every partition."""
        found: dict[tuple[int, str], WorkerRecord] = {}
        for partition in self.store.partitions():
            cursor = "0"
            while True:
                cursor, *flat = self.store.call("crew", partition, cursor, CREW_A_CALL)
                for at in range(0, len(flat), 4):
                    worker, until_ms, fields, runs = flat[at : at + 4]
                    told = _worker(worker, partition, int(float(until_ms)), json.loads(fields), runs.split())
                    found[partition, worker] = told
                if cursor == "0":
                    break
        return sorted(found.values(), key=lambda each: (each.partition, each.lease_until_ms, each.id))

    def _hash(self, key: str) -> dict[str, str]:
        self.store.guard()
        return fields_of(self.store.connection.command("HGETALL", key))


def _said(at_ms: int | None) -> Word:
    return "" if at_ms is None else at_ms


def _worker(worker: str, partition: int, until_ms: int, fields: dict[str, str], runs: list[str]) -> WorkerRecord:
    return WorkerRecord.model_validate(
        {
            "id": worker,
            "partition": partition,
            "state": fields["state"],
            "epoch": fields["epoch"],
            "lease_until_ms": until_ms,
            "seen_at_ms": fields["seen_at_ms"],
            "missing_at_ms": fields.get("missing_at_ms"),
            "identity": json.loads(fields["identity"]),
            "runs": runs,
        }
    )


def _merged(pages: list[list[Any]], limit: int) -> Page:
    """One page of several partitions' pages. None of them was looked at below its own cursor."""
    floors = [page[0] for page in pages if page[0]]
    floor = max(floors, default="")
    runs = [_summary(page[at : at + len(_SUMMARY)]) for page in pages for at in range(1, len(page), len(_SUMMARY))]
    runs = sorted((run for run in runs if run.id >= floor), key=lambda run: run.id, reverse=True)
    if len(runs) > limit:
        return Page(runs[:limit], runs[limit - 1].id)
    return Page(runs, floor or None)


def _summary(values: list[str]) -> Summary:
    fields: dict[str, Any] = dict(zip(_SUMMARY, values, strict=True))
    fields |= lane_parts(fields.pop("lane")) | {"attempt": fields["attempt"] or 0}
    return Summary.model_validate(fields)
