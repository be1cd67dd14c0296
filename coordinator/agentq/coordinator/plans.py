"""Plans: tasks that depend on each other, each of them a run, and what becomes of them together.

A plan is made in three steps: its record, its tasks, and the seal, which says that all of them are there. Each can be
sent again, and the id of every run follows from the plan and the task: so a plan whose submit was cut can be seen as
such, and the same words complete it. It has ended when it is sealed and none of its tasks lives; then the event
`plan_ended` tells the word that it ended with. A plan lives in one partition.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple
from zlib import compress, crc32, decompress

from pydantic import TypeAdapter, ValidationError

from agentq.coordinator import limits
from agentq.coordinator.errors import AgentqError, Invalid, NotFound, TryLater, WrongState, refusal
from agentq.coordinator.fields import Name, one_sentence
from agentq.coordinator.identity import new_nonce, task_run_id
from agentq.coordinator.life import spending_of
from agentq.coordinator.lifecycle import LIVE, OutcomeClass, State
from agentq.coordinator.ordering import in_order
from agentq.coordinator.queue import Queue
from agentq.coordinator.run import RunSpec, Spending

OnFailed = Literal["skip", "run", "fail-plan"]
ON_FAILED: dict[OnFailed, str] = {
    "skip": "what depends on a task that did not complete is skipped; the rest goes on",
    "run": "what depends on it runs all the same",
    "fail-plan": "the first task that fails stops the plan: what has not ended is cancelled",
}
Which = Literal["failed", "all"]
FIELDS = 4
"""Of each plan in the reply of the script."""
TASK_FIELDS = 12
LATER = 0xFFFFFF
"""The place of tasks that were added to a plan: behind all others."""

_name: TypeAdapter[str] = TypeAdapter(Name)


class Task(NamedTuple):
    """One task on the way in: its run, without what follows from its place in the plan."""

    id: str
    spec: RunSpec
    needs: Sequence[str] = ()
    """Tasks that must complete before it."""
    inputs: Sequence[str] = ()
    """Tasks whose outcomes stand in it; it needs them, directly or not."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan as it stands."""

    id: str
    name: str
    on_failed: OnFailed
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

    @property
    def live(self) -> int:
        return sum(self.counts.get(state, 0) for state in LIVE)

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
    spending: Spending | None


class Plans:
    """What anyone may say of plans."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.store = queue.store

    def create(
        self,
        name: str,
        tasks: Sequence[Task],
        *,
        plan: str | None = None,
        on_failed: OnFailed = "skip",
        source: str = "",
        durable: bool = False,
    ) -> str:
        """Put a plan into the world; with the same id and words again, whatever is missing of it. Returns its id.

        `source` is kept with it, for whoever is to complete it or wants to know what it was made from.
        """
        if not tasks:
            raise Invalid("A plan has at least one task.")
        if len(tasks) > limits.PLAN_TASKS:
            raise Invalid(f"A plan has {limits.PLAN_TASKS} tasks at the most, not {len(tasks)}.")
        plan = plan or new_plan_id(name)
        ordered = _ordered(tasks)
        words = (name, on_failed, len(tasks), _packed(source))
        created_at_ms = self._open(plan, *words)
        partition = self.partition(plan)
        ids = {task.id: task_run_id(partition, created_at_ms, at, plan, task.id) for at, task in enumerate(ordered)}
        self._submit(plan, ordered, ids, on_failed)
        self._seal(plan, durable)
        return plan

    def add(self, plan: str, tasks: Sequence[Task]) -> dict[str, str]:
        """Add tasks to a plan, which goes on if it had ended; returns their runs. They may need any task of it."""
        record = self.get(plan)
        known = self.runs(plan, [need for task in tasks for need in (*task.needs, *task.inputs, task.id)])
        ordered, partition = _ordered(tasks, known), self.partition(plan)
        ids = {task.id: task_run_id(partition, record.created_at_ms, LATER, plan, task.id) for task in tasks}
        taken = next((task for task, run in ids.items() if known.get(task, run) != run), None)
        if taken is not None:
            raise Invalid(f"The plan {plan} has a task {taken} already; give the new one another id.")
        self._open(plan, "", "", 0, "")
        try:
            self._submit(plan, ordered, known | ids, record.on_failed)
        finally:
            if record.sealed:
                self._seal(plan)
        return ids

    def cancel(self, plan: str, why: str = "cancelled on request") -> Plan:
        """Let nothing more of it begin, and stop what runs; it has ended when the workers have confirmed that."""
        words = (plan, f"its plan was cancelled: {why}"[: limits.ERROR_CHARACTERS])
        self._until_done(plan, lambda: self.store.call("halt", self.partition(plan), *words))
        return self.get(plan)

    def retry(self, plan: str, which: Which = "failed", *, task: str | None = None, operation: str = "") -> Plan:
        """Let tasks that failed begin again, or also the cancelled, or one; and with them what was skipped for them."""
        operation, mode = operation or self.store.nonce(), str(which)
        if task is not None:
            run = self.runs(plan, [task]).get(task)
            if run is None:
                raise NotFound(f"The plan {plan} has no task {task}.")
            self.queue.requeue(run, operation=operation)
            mode = "skipped"
        elif which == "failed" and self.get(plan).stopped:
            # What the stop has cancelled is what is missing.
            mode = "all"
        words = (plan, mode, operation)
        self._until_done(plan, lambda: self.store.call("retry", self.partition(plan), *words))
        return self.get(plan)

    def get(self, plan: str) -> Plan:
        """One plan."""
        _, found = self._read(self.partition(plan), "", 1, plan)
        if not found:
            raise NotFound(f"There is no plan {plan[:80]}; `agentq plan ls` shows those that there are.")
        return found[0]

    def ls(self, *, limit: int = 100, cursor: str | None = None) -> tuple[list[Plan], str | None]:
        """A page of plans, the newest first, and where the next one goes on."""
        if not 1 <= limit <= limits.LIST_A_CALL:
            raise Invalid(f"A page has 1 to {limits.LIST_A_CALL} plans, not {limit}.")
        pages = [self._read(partition, cursor or "", limit) for partition in self.store.partitions()]
        floor = max((_place(floor) for floor, _ in pages if floor), default=None)
        found = sorted((plan for _, plans in pages for plan in plans), key=_own_place, reverse=True)
        if floor is not None:
            found = [plan for plan in found if _own_place(plan) >= floor]
        if len(found) > limit:
            found, floor = found[:limit], _own_place(found[limit - 1])
        return found, None if floor is None else f"{floor[0]} {floor[1]}"

    def counts(self, plan: str) -> dict[State, int]:
        """How many of its tasks are in each state in which there are any."""
        return self.get(plan).counts

    def tasks(
        self, plan: str, *states: State, limit: int = 100, cursor: str | None = None
    ) -> tuple[list[TaskRecord], str | None]:
        """A page of its tasks in the order of the plan, or of those in some states, and where the next one goes on."""
        if not 1 <= limit <= limits.LIST_A_CALL:
            raise Invalid(f"A page has 1 to {limits.LIST_A_CALL} tasks, not {limit}.")
        cursor, *flat = self.store.call("tasks", self.partition(plan), plan, cursor or "", limit, *states)
        rows = (flat[at : at + TASK_FIELDS] for at in range(0, len(flat), TASK_FIELDS))
        return [_task(*row) for row in rows if row[1]], cursor or None

    def all_tasks(self, plan: str, *states: State) -> Iterator[TaskRecord]:
        """Every task of it, or those in some states."""
        cursor: str | None = None
        while True:
            page, cursor = self.tasks(plan, *states, limit=limits.LIST_A_CALL, cursor=cursor)
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

    def forget(self, plan: str) -> None:
        """Delete an ended plan and its tasks before their time."""
        record = self.get(plan)
        if record.ended is None:
            raise WrongState(f"The plan {plan} is {record.state}; only one that has ended can be forgotten.")
        while True:
            page, _ = self.tasks(plan, limit=limits.SWEEP_A_CALL)
            if not page:
                return
            refused = self.queue.forget([(task.run, task.state) for task in page])
            first = next((error for error in refused if error is not None and not isinstance(error, NotFound)), None)
            if first is not None:
                raise first

    def partition(self, plan: str) -> int:
        """Where a plan lives, with its tasks."""
        return crc32(_checked(plan).encode()) % self.store.keyspace.partitions

    # ---- how it is done

    def _open(self, plan: str, *words: Any) -> int:
        reply = self.store.call("plan", self.partition(plan), plan, *words)
        if isinstance(reply, str):
            raise refusal(reply, f"plan {plan}") or AssertionError(reply)
        return int(reply[1])

    def _seal(self, plan: str, durable: bool = False) -> None:
        call = self.store.call_durably if durable else self.store.call
        refused = refusal(call("seal", self.partition(plan), plan), f"plan {plan}")
        if refused is not None:
            raise refused

    def _submit(self, plan: str, tasks: Sequence[Task], ids: dict[str, str], on_failed: OnFailed) -> None:
        specs = (_spec(plan, task, ids, on_failed) for task in tasks)
        receipts = self.queue.submit_many(specs, run_ids=[ids[task.id] for task in tasks], batch=limits.TASKS_A_CALL)
        refused: AgentqError | None = None
        for receipt in receipts:
            refused = refused or receipt.refused
        if refused is not None:
            raise refused

    def _until_done(self, plan: str, call: Callable[[], str]) -> None:
        for _ in range(limits.PLAN_TASKS):
            reply = call()
            refused = refusal(reply, f"plan {plan}")
            if refused is not None:
                raise refused
            if reply == "ok 0":
                return
        raise TryLater(f"The plan {plan} is still at it; the duties go on with it.")

    def _read(self, partition: int, before: str, limit: int, *names: str) -> tuple[str, list[Plan]]:
        cursor, *flat = self.store.call("plans", partition, before, limit, *names)
        return cursor, [_plan(*flat[at : at + FIELDS]) for at in range(0, len(flat), FIELDS)]


def new_plan_id(name: str) -> str:
    """Make the id of a new plan: its name, and something that no other has."""
    return f"{_checked(name)[: limits.NAME_LENGTH - 10]}-{new_nonce()}"


def _checked(name: str, what: str = "a plan") -> str:
    try:
        return _name.validate_python(name)
    except ValidationError as error:
        raise Invalid(f"{name[:80]!r} is not the name of {what}: {one_sentence(error)}") from error


def _ordered(tasks: Sequence[Task], known: Collection[str] = ()) -> list[Task]:
    for task in tasks:
        _checked(task.id, "a task")
    return in_order(tasks, known)


def _packed(source: str) -> str:
    packed = b64encode(compress(source.encode(), 6)).decode() if source else ""
    if len(packed) > limits.PLAN_SOURCE_BYTES:
        raise Invalid(
            f"What the plan was made from has {len(packed)} bytes, compressed; {limits.PLAN_SOURCE_BYTES} is the most. "
            "Pass large prompts as files."
        )
    return packed


def _spec(plan: str, task: Task, ids: dict[str, str], on_failed: OnFailed) -> RunSpec:
    """The run of a task, with what follows from its place in the plan."""
    more: dict[str, Any] = {"plan": plan, "task": task.id}
    if task.needs:
        more["after"] = tuple(ids[need] for need in task.needs)
    if task.inputs:
        more["inputs"] = {name: ids[name] for name in task.inputs}
    if on_failed == "run" and "on_failed" not in task.spec.model_fields_set:
        more["on_failed"] = "run"
    return task.spec.model_copy(update=more)


def _plan(plan: str, told: str, tasks: int, counts: str) -> Plan:
    fields: dict[str, Any] = json.loads(told)
    by_state = (each.split("=") for each in counts.split())
    return Plan(
        id=plan,
        name=fields["name"],
        on_failed=fields["on_failed"],
        sealed=fields["sealed"] == "1",
        expected=int(fields["expected"]),
        tasks=tasks,
        counts={State(state): int(count) for state, count in by_state},
        created_at_ms=int(fields["created_at_ms"]),
        stopped=fields.get("stopped"),
        stopped_why=fields.get("stopped_why", ""),
        retrying="walking" in fields,
        ended=fields.get("ended"),
        ended_at_ms=int(fields["ended_at_ms"]) if "ended_at_ms" in fields else None,
    )


def _task(run: str, task: str, state: str, attempt: str, worker: str, reason: str, *rest: str) -> TaskRecord:
    *times, class_, spending = rest
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
        spending=spending_of(spending) if spending else None,
    )


def _place(cursor: str) -> tuple[int, str]:
    at_ms, _, plan = cursor.partition(" ")
    return int(at_ms), plan


def _own_place(plan: Plan) -> tuple[int, str]:
    return plan.created_at_ms, plan.id
