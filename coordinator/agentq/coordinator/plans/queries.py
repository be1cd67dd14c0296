"""Reads plans and their tasks."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from zlib import crc32, decompress

from pydantic import TypeAdapter, ValidationError

from agentq.coordinator import bounds
from agentq.coordinator.errors import Invalid, NotFound
from agentq.coordinator.model.agent_options import AGENT_LABEL
from agentq.coordinator.model.field_types import Name, describe_error
from agentq.coordinator.model.lane import parse_lane
from agentq.coordinator.model.lifecycle import LIVE_STATES, OutcomeClass, State
from agentq.coordinator.model.spec import AgentSpending
from agentq.coordinator.runs.run_record import parse_spending
from agentq.coordinator.storage.socket_link import parse_script_json
from agentq.coordinator.storage.store import NamespaceStore

OnFailedPolicy = Literal["skip", "run", "fail-plan"]
ON_FAILED_MEANINGS: dict[OnFailedPolicy, str] = {
    "skip": "what depends on a task that did not complete is skipped; the rest goes on",
    "run": "what depends on it runs all the same",
    "fail-plan": "the first task that fails stops the plan: what has not ended is cancelled",
}
FIELDS_PER_PLAN = 4
"""Of each plan in the reply of the script."""
FIELDS_PER_TASK = 13
_name_adapter: TypeAdapter[str] = TypeAdapter(Name)


@dataclass(frozen=True, slots=True)
class PlanRecord:
    """A plan as it stands."""

    id: str
    name: str
    on_failed: OnFailedPolicy
    sealed: bool
    expected: int
    """How many tasks it was to have when it was made."""
    tasks: int
    counts: dict[State, int]
    """How many of its tasks are in each state in which there are any."""
    created_at_ms: int
    stopped: str | None
    """The word that it ends with since it was stopped; None if it was not."""
    stopped_why: str
    retrying: bool
    """Whether ended tasks of it are being let begin again."""
    ended: str | None
    ended_at_ms: int | None
    made_by: str
    """The token that made it, if one did."""

    @property
    def live(self) -> int:
        return sum(self.counts.get(state, 0) for state in LIVE_STATES)

    @property
    def state(self) -> str:
        """`open` while tasks may be missing, `running`, `stopping`, or how it ended: completed, failed or cancelled."""
        return self.ended or ("stopping" if self.stopped else "running" if self.sealed else "open")


@dataclass(frozen=True, slots=True)
class TaskRecord:
    """A task as it stands."""

    id: str
    run: str
    state: State
    attempt: int
    worker: str
    reason: str
    submitted_at_ms: int
    claimed_at_ms: int | None
    started_at_ms: int | None
    finished_at_ms: int | None
    class_: OutcomeClass | None
    spending: AgentSpending | None
    agent: str | None = None


class PlanQueries:
    """The reading side of plans."""

    def __init__(self, store: NamespaceStore) -> None:
        self.store = store

    def get(self, plan: str) -> PlanRecord:
        """One plan."""
        _, found = self._read(self.partition(plan), "", 1, plan)
        if not found:
            raise NotFound(f"There is no plan {plan[:80]}; `agentq plan ls` shows those that there are.")
        return found[0]

    def ls(self, *, limit: int = 100, cursor: str | None = None) -> tuple[list[PlanRecord], str | None]:
        """A page of plans, the newest first, and where the next one goes on."""
        if not 1 <= limit <= bounds.LIST_PER_CALL:
            raise Invalid(f"A page has 1 to {bounds.LIST_PER_CALL} plans, not {limit}.")
        pages = [self._read(partition, cursor or "", limit) for partition in self.store.partitions()]
        floor = max((_parse_cursor(floor) for floor, _ in pages if floor), default=None)
        found = sorted((plan for _, plans in pages for plan in plans), key=_sort_key, reverse=True)
        if floor is not None:
            found = [plan for plan in found if _sort_key(plan) >= floor]
        if len(found) > limit:
            found, floor = found[:limit], _sort_key(found[limit - 1])
        return found, None if floor is None else f"{floor[0]} {floor[1]}"

    def counts(self, plan: str) -> dict[State, int]:
        """How many of its tasks are in each state in which there are any."""
        return self.get(plan).counts

    def tasks(
        self, plan: str, *states: State, limit: int = 100, cursor: str | None = None
    ) -> tuple[list[TaskRecord], str | None]:
        """A page of its tasks in the order of the plan, or of those in some states, and where the next one goes on."""
        if not 1 <= limit <= bounds.LIST_PER_CALL:
            raise Invalid(f"A page has 1 to {bounds.LIST_PER_CALL} tasks, not {limit}.")
        cursor, *flat = self.store.call("plan/list_tasks", self.partition(plan), plan, cursor or "", limit, *states)
        rows = (flat[at : at + FIELDS_PER_TASK] for at in range(0, len(flat), FIELDS_PER_TASK))
        return [_parse_task(*row) for row in rows if row[1]], cursor or None

    def all_tasks(self, plan: str, *states: State) -> Iterator[TaskRecord]:
        """Every task of it, or those in some states."""
        cursor: str | None = None
        while True:
            page, cursor = self.tasks(plan, *states, limit=bounds.LIST_PER_CALL, cursor=cursor)
            yield from page
            if cursor is None:
                return

    def runs(self, plan: str, tasks: Sequence[str]) -> dict[str, str]:
        """The runs of some of its tasks; what it has no task of is left out."""
        if not tasks:
            return {}
        names = list(dict.fromkeys(tasks))
        key = self.store.key(self.partition(plan), "plan_tasks", plan)
        self.store.guard()
        found = self.store.connection.command("HMGET", key, *names)
        return {name: run for name, run in zip(names, found, strict=True) if run}

    def source(self, plan: str) -> str:
        """What it was made from."""
        self.get(plan)
        key = self.store.key(self.partition(plan), "plan", plan)
        packed = self.store.connection.command("HGET", key, "source")
        return decompress(b64decode(packed)).decode() if packed else ""

    def partition(self, plan: str) -> int:
        """Where a plan lives, with its tasks."""
        return crc32(check_plan_name(plan).encode()) % self.store.keyspace.partitions

    def _read(self, partition: int, before: str, limit: int, *names: str) -> tuple[str, list[PlanRecord]]:
        cursor, *flat = self.store.call("plan/list", partition, before, limit, *names)
        return cursor, [_parse_plan(*flat[at : at + FIELDS_PER_PLAN]) for at in range(0, len(flat), FIELDS_PER_PLAN)]


def check_plan_name(name: str, what: str = "a plan") -> str:
    try:
        return _name_adapter.validate_python(name)
    except ValidationError as error:
        raise Invalid(f"{name[:80]!r} is not the name of {what}: {describe_error(error)}") from error


def _parse_plan(plan: str, told: str, tasks: int, counts: str) -> PlanRecord:
    fields: dict[str, Any] = parse_script_json(told)
    by_state = (each.split("=") for each in counts.split())
    return PlanRecord(
        id=plan,
        name=fields["name"],
        on_failed=fields["on_failed"],
        sealed=fields["sealed"] == "1",
        expected=int(fields["expected"]),
        tasks=tasks,
        counts={State(state): int(count) for state, count in by_state},
        created_at_ms=int(fields["created_at_ms"]),
        stopped=fields.get("stop_state"),
        stopped_why=fields.get("stop_reason", ""),
        retrying="retry_scope" in fields,
        ended=fields.get("end_state"),
        ended_at_ms=int(fields["ended_at_ms"]) if "ended_at_ms" in fields else None,
        made_by=fields.get("made_by", ""),
    )


def _parse_task(run: str, task: str, state: str, attempt: str, worker: str, reason: str, *rest: str) -> TaskRecord:
    *times, class_, spending, lane = rest
    submitted, claimed, started, finished = (int(at_ms) if at_ms else None for at_ms in times)
    return TaskRecord(
        id=task,
        run=run,
        state=State(state),
        attempt=int(attempt or 0),
        worker=worker,
        reason=reason,
        submitted_at_ms=submitted or 0,
        claimed_at_ms=claimed,
        started_at_ms=started,
        finished_at_ms=finished,
        class_=OutcomeClass(class_) if class_ else None,
        spending=parse_spending(spending) if spending else None,
        agent=_agent_in_lane(lane),
    )


def _agent_in_lane(lane: str) -> str | None:
    """An agent's run waits in a lane for workers that have the agent."""
    demanded = parse_lane(lane)["demands"]
    return next((name.removeprefix(AGENT_LABEL) for name in demanded if name.startswith(AGENT_LABEL)), None)


def _parse_cursor(cursor: str) -> tuple[int, str]:
    at_ms, _, plan = cursor.partition(" ")
    return int(at_ms), plan


def _sort_key(plan: PlanRecord) -> tuple[int, str]:
    return plan.created_at_ms, plan.id
