"""Reads runs, lists and counts of runs, and workers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, JsonValue

from agentq.coordinator.bounds import LIST_PER_CALL, QUEUES_PER_CALL, WORKERS_LISTED_PER_CALL
from agentq.coordinator.errors import Invalid, NotFound, reading_record, refusal_error
from agentq.coordinator.model.durations import format_duration
from agentq.coordinator.model.ids import id_created_ms, partition_of, run_id_prefix
from agentq.coordinator.model.lifecycle import OutcomeClass, State
from agentq.coordinator.model.spec import parse_lane
from agentq.coordinator.runs.run_record import RunListEntry, RunRecord
from agentq.coordinator.storage.connection import CommandArgument
from agentq.coordinator.storage.socket_link import pairs_to_dict
from agentq.coordinator.storage.store import NamespaceStore

DAMAGED_REASON = "its record is damaged"
"""The reason of a run in a list whose fields cannot be read."""
_ID_PREFIX = re.compile(r"run_[0-9a-z]+")
_WORKER_LIFE_FIELDS = ("registered_at_ms", "runs_ended", "ended_at_ms", "ended_why")
_SUMMARY_FIELDS = ("id", "state", "lane", "attempt", "worker", "reason", "submitted_at_ms")


@dataclass(frozen=True, slots=True)
class RunListPage:
    """A page of a list. `cursor` is for the next call; None at the end."""

    runs: list[RunListEntry]
    cursor: str | None


@dataclass(frozen=True, slots=True)
class RunFilter:
    """Which runs to list. Times are those in the ids: when the run was made, by the submitter's clock."""

    states: tuple[State, ...] = tuple(State)
    queue: str | None = None
    queues: tuple[str, ...] = ()
    """Runs of these queues only; of all queues if empty."""
    plan: str | None = None
    session: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    class_: OutcomeClass | None = None
    """Runs that ended with this class only; with this, or with the two end times, pages can be short."""
    ended_since_ms: int | None = None
    ended_until_ms: int | None = None
    made_by: str = ""
    """Runs that this token submitted only; with this, pages can be short."""


class WorkerDescription(BaseModel):
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
    identity: WorkerDescription
    runs: list[str]
    registered_at_ms: int | None = None
    runs_ended: int = 0
    """The attempts whose end it has reported."""
    ended_at_ms: int | None = None
    """When it left or was declared lost, in its present epoch."""
    ended_why: str = ""

    def silent_ms(self, now_ms: int) -> int:
        """The time since its last heartbeat, from half its lease on, when several heartbeats are missing; else 0."""
        if self.ended_at_ms is not None:
            return 0
        unheard_ms = now_ms - self.seen_at_ms
        return unheard_ms if self.state == "lost" or 2 * unheard_ms > self.lease_until_ms - self.seen_at_ms else 0

    def silence(self, now_ms: int, grace_ms: int) -> str:
        """The time since its last heartbeat and until it is declared lost, as the end of a sentence; empty if alive."""
        silent_ms = self.silent_ms(now_ms)
        return describe_silence(silent_ms, self.lost_at_ms(grace_ms) - now_ms) if silent_ms else ""

    def lost_at_ms(self, grace_ms: int) -> int:
        """When it is declared lost, unless a heartbeat arrives."""
        return max(self.lease_until_ms, self.missing_at_ms or 0) + grace_ms


def describe_silence(silent_ms: int, lost_in_ms: int) -> str:
    """The time since a worker's last heartbeat and until it is declared lost, as the end of a sentence."""
    when = "is declared lost in the next round of a worker or `agentq reap`"
    if lost_in_ms > 0:
        when = f"is declared lost in {format_duration(lost_in_ms)}"
    return f"has sent no heartbeat for {format_duration(silent_ms)} and {when}"


class RunQueries:
    """The reads of one namespace."""

    def __init__(self, store: NamespaceStore) -> None:
        self.store = store

    def get(self, run_id: str) -> RunRecord:
        """Return one run with all fields."""
        key = self.store.key(partition_of(run_id), "run", run_id)
        fields = self._hash(key)
        if not fields:
            raise NotFound(f"There is no run {run_id}; it may have been deleted after its retention.")
        return _parse_run(run_id, fields)

    def given(self, run_id: str, others: Sequence[str]) -> list[RunRecord]:
        """The records of the runs whose results a run names, as far as they exist."""
        found: list[RunRecord] = []
        queues = self._readable_by(run_id)
        for partition in dict.fromkeys(map(partition_of, others)):
            ids = [other for other in others if partition_of(other) == partition]
            for other, reply in zip(ids, self.store.call("run/read_results", partition, queues, *ids), strict=True):
                refused = refusal_error(reply, f"run {other}") if isinstance(reply, str) else None
                if refused is not None:
                    raise refused
                if reply:
                    found.append(_parse_run(other, pairs_to_dict(reply)))
        return found

    def _readable_by(self, run_id: str) -> str:
        """The queues whose results a run may get: those of the token that submitted it, and its own."""
        key, command = self.store.key(partition_of(run_id), "run", run_id), self.store.connection.command
        self.store.guard()
        readable, made_by, lane = command("HMGET", key, "readable_queues", "made_by", "lane")
        if not readable and made_by:  # an earlier version does not keep it
            readable = command("HGET", self.store.key(0, "token", made_by), "queues")
        return f"{readable} {lane.partition(':')[0]}" if readable else ""

    def size(self, run_id: str) -> int:
        """The approximate size of a run's record: its spec and the outcome of its last attempt."""
        key, command = self.store.key(partition_of(run_id), "run", run_id), self.store.connection.command
        return sum(int(command("HSTRLEN", key, field)) for field in ("spec", "outcome"))

    def needs(self, run_id: str, most: int = 100) -> list[str]:
        """Some of the runs that a blocked run still waits for."""
        key = self.store.key(partition_of(run_id), "dependencies", run_id)
        return sorted(self.store.connection.command("SRANDMEMBER", key, most))

    def children(self, run_id: str, most: int = 100) -> tuple[int, list[str]]:
        """How many live children a run has, and some of them, the oldest first."""
        key, command = self.store.key(partition_of(run_id), "children", run_id), self.store.connection.command
        return int(command("ZCARD", key)), list(command("ZRANGE", key, 0, most - 1))

    def page(self, which: RunFilter = RunFilter(), *, limit: int = 100, cursor: str | None = None) -> RunListPage:
        """A page of runs, newest first."""
        if not 1 <= limit <= LIST_PER_CALL:
            raise Invalid(f"A page has 1 to {LIST_PER_CALL} runs, not {limit}.")
        if cursor is not None and not _ID_PREFIX.fullmatch(cursor):
            raise Invalid("cursor: it is not a cursor of a list of runs.")
        until = "" if which.until_ms is None else run_id_prefix(which.until_ms)
        since = "" if which.since_ms is None else run_id_prefix(which.since_ms)
        before = min(cursor, until) if cursor and until else cursor or until
        return self.below(which, before, since=since, limit=limit)

    def below(
        self, which: RunFilter, before: str, *, since: str = "", ending: str = "", limit: int = 100
    ) -> RunListPage:
        """A page of the runs with ids between two texts that end with `ending`."""
        queues = (which.queue,) if which.queue is not None else which.queues or ("*",)
        rows = [word for queue in queues for state in which.states for word in (queue, state.value)]
        ended = (which.class_ or "", _optional_argument(which.ended_since_ms), _optional_argument(which.ended_until_ms))
        arguments: tuple[CommandArgument, ...] = (
            which.plan or "",
            which.session or "",
            before,
            since,
            limit,
            *ended,
            ending,
            which.made_by,
            *rows,
        )
        pages = [self.store.call("run/list", partition, *arguments) for partition in self.store.partitions()]
        return _merge_pages(pages, limit)

    def all(self, which: RunFilter = RunFilter()) -> Iterator[RunListEntry]:
        """Every run, newest first, page by page."""
        cursor: str | None = None
        while True:
            page = self.page(which, limit=LIST_PER_CALL, cursor=cursor)
            yield from page.runs
            cursor = page.cursor
            if cursor is None:
                return

    def queues(self) -> list[str]:
        """The queues that have runs, or had some recently, by name."""
        self.store.guard()
        keys = [self.store.key(partition, "queues") for partition in self.store.partitions()]
        return sorted({queue for key in keys for queue in self.store.connection.command("SMEMBERS", key)})

    def count(self, states: Iterable[State] = tuple(State)) -> dict[str, dict[State, int]]:
        """How many runs each queue has in each state."""
        counts: dict[str, dict[State, int]] = {}
        for queue, state, number, _ in self.depths(self.queues(), states):
            of_queue = counts.setdefault(queue, {})
            of_queue[state] = of_queue.get(state, 0) + number
        return counts

    def depths(
        self, queues: Sequence[str], states: Iterable[State] = tuple(State)
    ) -> Iterator[tuple[str, State, int, str]]:
        """How many runs these queues have in each state that has some, and the oldest of them, in each partition."""
        wanted = " ".join(states)
        for partition in self.store.partitions():
            for at in range(0, len(queues), QUEUES_PER_CALL):
                flat = self.store.call("run/count", partition, wanted, *queues[at : at + QUEUES_PER_CALL])
                for place in range(0, len(flat), 4):
                    queue, state, number, oldest = flat[place : place + 4]
                    yield queue, State(state), number, oldest

    def workers(self, *, departed: bool = False) -> list[WorkerRecord]:
        """Every registered worker, in every partition; or those that left or were lost within the last hour."""
        found: dict[tuple[int, str], WorkerRecord] = {}
        which = "departed" if departed else "here"
        for partition in self.store.partitions():
            cursor = "0"
            while True:
                cursor, *flat = self.store.call("worker/list", partition, which, cursor, WORKERS_LISTED_PER_CALL)
                for at in range(0, len(flat), 4):
                    worker, until_ms, fields, runs = flat[at : at + 4]
                    reply = _parse_worker(worker, partition, int(float(until_ms)), json.loads(fields), runs.split())
                    found[partition, worker] = reply
                if cursor == "0":
                    break
        return sorted(found.values(), key=lambda each: (each.partition, each.lease_until_ms, each.id))

    def _hash(self, key: str) -> dict[str, str]:
        self.store.guard()
        return pairs_to_dict(self.store.connection.command("HGETALL", key))


def _parse_run(run_id: str, fields: dict[str, str]) -> RunRecord:
    with reading_record(f"the run {run_id}"):
        return RunRecord.from_hash(run_id, fields)


def _optional_argument(at_ms: int | None) -> CommandArgument:
    return "" if at_ms is None else at_ms


def _parse_worker(worker: str, partition: int, until_ms: int, fields: dict[str, str], runs: list[str]) -> WorkerRecord:
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
            **{name: fields[name] for name in _WORKER_LIFE_FIELDS if name in fields},
        }
    )


def _merge_pages(pages: list[list[Any]], limit: int) -> RunListPage:
    """Merge the pages of several partitions. Each was read only down to its own cursor."""
    floors = [page[0] for page in pages if page[0]]
    floor = max(floors, default="")
    runs = [
        _parse_summary(page[at : at + len(_SUMMARY_FIELDS)])
        for page in pages
        for at in range(1, len(page), len(_SUMMARY_FIELDS))
    ]
    runs = sorted((run for run in runs if run.id >= floor), key=lambda run: run.id, reverse=True)
    if len(runs) > limit:
        return RunListPage(runs[:limit], runs[limit - 1].id)
    return RunListPage(runs, floor or None)


def _parse_summary(values: list[str]) -> RunListEntry:
    fields: dict[str, Any] = dict(zip(_SUMMARY_FIELDS, values, strict=True))
    lane = fields.pop("lane")
    try:
        return RunListEntry.model_validate({**fields, **parse_lane(lane), "attempt": fields["attempt"] or 0})
    except ValueError:
        known = {name: fields[name] for name in ("id", "state", "worker")}
        rest = {"queue": lane.partition(":")[0], "priority": 0, "demands": {}, "attempt": 0, "reason": DAMAGED_REASON}
        return RunListEntry.model_validate({**known, **rest, "submitted_at_ms": id_created_ms(known["id"])})
