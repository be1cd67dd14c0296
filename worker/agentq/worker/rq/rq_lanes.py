"""The lanes of an RQ queue: how jobs enter, how they return, and which wait.

RQ's own list holds the backlog, where RQ's tools count it and a producer can still push to its front. A lane gets as
many jobs as the workers can soon take. Each step between the two is one script.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple

from pydantic_core import to_json

from agentq.coordinator.bounds import LIST_PER_CALL, PRIORITY_MAX
from agentq.coordinator.model.ids import new_run_id, new_run_ids
from agentq.coordinator.model.spec import RunSpec, is_front_lane, parse_lane
from agentq.coordinator.runs.rq_titles import PERFORM_FUNCTION
from agentq.coordinator.storage.store import NamespaceStore
from agentq.worker.rq.queue_names import to_queue_name
from agentq.worker.rq.redis_client import RQ_PARTITION

INTAKE_BATCH = 500
RECALL_BATCH = 500
UNCLOSED_BATCH = 200
_JOB_PLACEHOLDER = "\N{HEAVY CHECK MARK}"
_TIMEOUT_PLACEHOLDER = 123_456_789


class RqIntake(NamedTuple):
    """How many jobs entered, and whether there was no room for more."""

    taken: int
    more: bool


class UnclosedJob(NamedTuple):
    """A job whose run has ended without RQ being told."""

    run: str
    job: str
    state: str
    attempt: int
    error: str


class RqLanes:
    """The lanes of one RQ queue."""

    def __init__(self, store: NamespaceStore, rq_queue: str, serializer: str = "") -> None:
        self.store = store
        self.rq_queue = rq_queue
        self.queue = to_queue_name(rq_queue)
        self.serializer = serializer

    @property
    def source(self) -> str:
        """The list that RQ pushes to."""
        return f"rq:queue:{self.rq_queue}"

    @property
    def arrived(self) -> str:
        """The list into which a blocking read moves a job, until a script takes it in."""
        return self.store.key(RQ_PARTITION, "rq_arrived", self.queue)

    def spec(self, job: str) -> RunSpec:
        """The spec of a job's run."""
        return RunSpec(
            kind="function", function=PERFORM_FUNCTION, args=[job, self.rq_queue, self.serializer], queue=self.queue
        )

    @cached_property
    def around(self) -> tuple[str, str, str]:
        """The text of such a spec around the job's id; and, as JSON, around id and timeout."""
        head, _, tail = self.spec(_JOB_PLACEHOLDER).to_wire().decode().partition(to_json(_JOB_PLACEHOLDER).decode())
        timed = self.spec(_JOB_PLACEHOLDER).model_copy(update={"timeout_ms": _TIMEOUT_PLACEHOLDER})
        before, _, rest = (
            RunSpec(**timed.model_dump(exclude_defaults=True)).to_wire().decode().partition(f'"{_JOB_PLACEHOLDER}"')
        )
        between, _, after = rest.partition(str(_TIMEOUT_PLACEHOLDER))
        return head, tail, to_json([before, between, after]).decode()

    def lane(self, *, at_front: bool = False) -> str:
        """The lane for a job. A stream has no front, so jobs pushed to the front have a lane of their own,
        more urgent.
        """
        spec = self.spec(_JOB_PLACEHOLDER)
        return (spec.model_copy(update={"priority": PRIORITY_MAX}) if at_front else spec).lane

    # ---- in

    def take_in(self, room: int) -> RqIntake:
        """Take jobs from RQ's list, while fewer than `room` wait here."""
        ids = new_run_ids(INTAKE_BATCH if room > INTAKE_BATCH else max(room, 1), RQ_PARTITION)
        taken, more = self.store.call(
            "rq/import_jobs", RQ_PARTITION, self.lane(), self.source, *self.around, room, *ids
        )
        return RqIntake(taken, bool(more))

    def delivery(self, job: str, *, at_front: bool = False) -> tuple[str, str, str, str, str, str]:
        """The arguments of the script `deliver`, for callers with a pipeline of their own."""
        return new_run_id(RQ_PARTITION), self.lane(at_front=at_front), job, *self.around

    # ---- back

    def give_back(self) -> int:
        """Return all waiting jobs to RQ's list, in order; returns how many."""
        return self._recall(drop=False, why="given back to RQ")

    def drop_all(self) -> int:
        """Delete all waiting jobs, as RQ does when a queue is emptied."""
        return self._recall(drop=True, why="the queue was emptied")

    def _recall(self, *, drop: bool, why: str) -> int:
        total = 0
        while moved := sum(self._recalled(lane, drop, why) for lane in ("", *self._lanes())):
            total += moved
        return total

    def _recalled(self, lane: str, drop: bool, why: str) -> int:
        moved, before = 0, "+"
        while before:
            words = (self.queue, lane, self.source, before, RECALL_BATCH, int(drop), why)
            more, before = self.store.call("rq/return_jobs", RQ_PARTITION, *words)
            moved += more
        return moved

    def withdraw(self, job: str) -> int:
        """Remove one job, from RQ's list too; returns how often it waited."""
        return int(self.store.call("rq/remove_job", RQ_PARTITION, self.queue, self.source, job))

    # ---- to know

    def _lanes(self) -> list[str]:
        """The lanes of this queue, the least urgent first: so jobs returned to a front keep their order."""
        _, _running, *names = self.store.call("queue/list_lanes", RQ_PARTITION)
        mine = [lane for lane in names if parse_lane(lane)["queue"] == self.queue]
        return sorted(dict.fromkeys(mine), key=lambda lane: (parse_lane(lane)["priority"], is_front_lane(lane)))

    def left(self) -> int:
        """How many jobs are in RQ's list, or on their way from there."""
        return sum(int(self.store.connection.command("LLEN", name)) for name in (self.source, self.arrived))

    def waiting(self) -> int:
        """How many jobs wait here, besides those in RQ's list."""
        command = self.store.connection.command
        pending, blocked = (
            command("ZCARD", self.store.key(RQ_PARTITION, "index", self.queue, state))
            for state in ("pending", "blocked")
        )
        return int(pending) + int(blocked) + int(command("LLEN", self.arrived))

    def waiting_ids(self) -> list[str]:
        """The jobs that wait here, besides those in RQ's list: the next one first."""
        command = self.store.connection.command
        found: list[str] = []
        jobs = self.jobs()
        for lane in reversed(self._lanes()):
            for run in self._in_lane(lane):
                home = command("HMGET", self.store.key(RQ_PARTITION, "run", run), "state", "lane")
                if run in jobs and home == ["pending", lane]:
                    found.append(jobs[run])
        blocked = command("ZRANGE", self.store.key(RQ_PARTITION, "index", self.queue, "blocked"), 0, -1)
        return [*found, *(jobs[run] for run in blocked if run in jobs), *command("LRANGE", self.arrived, 0, -1)]

    def _in_lane(self, lane: str) -> Iterator[str]:
        after = "-"
        while True:
            entries = self.store.connection.command(
                "XRANGE", self.store.key(RQ_PARTITION, "lane", lane), after, "+", "COUNT", LIST_PER_CALL
            )
            yield from (fields[1] for _, fields in entries)
            if len(entries) < LIST_PER_CALL:
                return
            after = f"({entries[-1][0]}"

    def jobs(self) -> dict[str, str]:
        """Runs whose outcome RQ has not been told, each with its job."""
        flat: list[Any] = self.store.connection.command("HGETALL", self.store.key(RQ_PARTITION, "rq_jobs", self.queue))
        return dict(zip(flat[::2], flat[1::2], strict=True))

    def held(self) -> int:
        """How many jobs workers hold."""
        return sum(
            int(self.store.connection.command("ZCARD", self.store.key(RQ_PARTITION, "index", self.queue, state)))
            for state in ("claimed", "running")
        )

    def run_of(self, job: str) -> str | None:
        """The live run of a job, if there is one."""
        found = self.store.connection.command("GET", self.store.key(RQ_PARTITION, "dedupe", f"rq:{job}"))
        return str(found).partition(" ")[0] if found else None

    def unclosed(self) -> Iterator[UnclosedJob]:
        """Jobs whose runs have ended without RQ being told."""
        cursor = "0"
        while True:
            cursor, *flat = self.store.call("rq/list_unreported", RQ_PARTITION, self.queue, cursor, UNCLOSED_BATCH)
            for at in range(0, len(flat), 5):
                run, job, state, attempt, error = flat[at : at + 5]
                yield UnclosedJob(run, job, state, int(attempt), error)
            if cursor == "0":
                return
