"""The verbs of plans, which are DAGs of tasks, each task a run.

A plan is made in three steps: its record, its tasks, and the seal, which says that all of them are there. Each can be
sent again, and the id of every run follows from the plan, its secret and the task: so a plan whose submit was cut can
be seen as such, and the same words complete it. It has ended when it is sealed and none of its tasks lives; then the
event `plan_ended` tells the word that it ended with. A plan lives in one partition.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from secrets import token_hex
from typing import Any, Literal
from zlib import compress

from agentq.coordinator import bounds
from agentq.coordinator.errors import AgentqError, Invalid, NotFound, TryLater, WrongState, refusal_error
from agentq.coordinator.model.ids import make_task_run_id, new_nonce
from agentq.coordinator.model.spec import RunSpec
from agentq.coordinator.plans.event_reader import PlanEventReader
from agentq.coordinator.plans.queries import ON_FAILED_MEANINGS as ON_FAILED_MEANINGS
from agentq.coordinator.plans.queries import OnFailedPolicy as OnFailedPolicy
from agentq.coordinator.plans.queries import PlanQueries, check_plan_name
from agentq.coordinator.plans.queries import PlanRecord as PlanRecord
from agentq.coordinator.plans.queries import TaskRecord as TaskRecord
from agentq.coordinator.plans.source import PlanHeader, format_source, parse_header, parse_source
from agentq.coordinator.plans.source import TaskSubmission as TaskSubmission
from agentq.coordinator.plans.task_order import sort_by_needs
from agentq.coordinator.queues.limits import Limits
from agentq.coordinator.runs.end_waiter import RunEndWaiter
from agentq.coordinator.runs.verbs import RunVerbs
from agentq.coordinator.storage.connection import CommandArgument

RetrySelection = Literal["failed", "all"]
ADDED_TASK_INDEX = 0xFFFFFF
"""The place of tasks that were added to a plan: behind all others."""
PLAN_LIMIT = "plan:"
"""What the limit begins with under which the tasks of a plan run that says how many may at once."""


class Plans(PlanQueries):
    """What anyone may say of plans."""

    def __init__(self, queue: RunVerbs) -> None:
        super().__init__(queue.store)
        self.queue = queue

    def create(
        self,
        name: str,
        tasks: Sequence[TaskSubmission],
        *,
        plan: str | None = None,
        on_failed: OnFailedPolicy = "skip",
        source: str = "",
        budget_usd: float | None = None,
        given: Mapping[str, str] | None = None,
        durable: bool = False,
    ) -> str:
        """Submit a plan; a repeated call with the same id and tasks submits the missing ones. Returns its id.

        Once its tasks have cost `budget_usd`, what waits is cancelled, and what runs then is finished. `given` are runs
        that have ended, by the names by which `inputs` of the tasks take from them.
        `source` is kept with it, to complete the plan later and to show what it was made from.
        """
        if not tasks:
            raise Invalid("A plan has at least one task.")
        if len(tasks) > bounds.PLAN_TASKS:
            raise Invalid(f"A plan has {bounds.PLAN_TASKS} tasks at most, not {len(tasks)}.")
        if on_failed not in ON_FAILED_MEANINGS:
            raise Invalid(
                f"What becomes of a plan when a task fails is {', '.join(ON_FAILED_MEANINGS)}, not {on_failed[:40]!r}."
            )
        plan = plan or make_plan_id(name)
        given = given or {}
        ordered = _sort_tasks(tasks, given)
        budget: CommandArgument = "" if budget_usd is None else round(budget_usd * 1_000_000)
        words = (name, on_failed, len(tasks), _compress_source(source), budget, token_hex(16))
        created_at_ms = self._open(plan, *words, durable=durable)
        ids = self._ids(plan, created_at_ms, ((at, task.id) for at, task in enumerate(ordered)))
        self._submit(plan, ordered, {**given, **ids}, on_failed)
        self._seal(plan, durable=durable)
        return plan

    def submit(
        self, plan: str, header: PlanHeader, tasks: Sequence[TaskSubmission], *, durable: bool = False
    ) -> PlanRecord:
        """Create a plan with this id, its limit, and what completes it if this is cut; the plan as it stands then."""
        self._limit_parallel(plan, header)
        self._create_from(plan, header, tasks, format_source(header, tasks), durable=durable)
        return self.get(plan)

    def complete(self, plan: str) -> PlanRecord:
        """Submit the missing tasks of a plan whose submit was cut."""
        source = self.source(plan)
        header, tasks = parse_source(source)
        self._limit_parallel(plan, header)
        self._create_from(plan, header, tasks, source)
        return self.get(plan)

    def header(self, plan: str) -> PlanHeader:
        """What holds for a plan as a whole; little, if something else was kept with it."""
        return parse_header(self.source(plan), plan)

    def watch(self, plan: str) -> PlanEventReader:
        """What happens to a plan from now on; the caller closes it."""
        return PlanEventReader(self.store, self.partition(plan))

    def remove_limit(self, plan: str) -> None:
        """Forget how many tasks of an ended plan may run at once."""
        record = self.get(plan)
        if record.ended is None:
            raise WrongState(f"The plan {plan} is {record.state}; its limit goes when it has ended.")
        with suppress(NotFound):
            Limits(self.store).remove(f"{PLAN_LIMIT}{plan}")

    def add(self, plan: str, tasks: Sequence[TaskSubmission]) -> dict[str, str]:
        """Add tasks to a plan, which goes on if it had ended; returns their runs. They may need any task of it."""
        record = self.get(plan)
        self._restore_limit(record)
        known = self.runs(plan, [need for task in tasks for need in (*task.needs, *task.inputs, task.id)])
        ordered = _sort_tasks(tasks, known)
        ids = self._ids(plan, record.created_at_ms, ((ADDED_TASK_INDEX, task.id) for task in tasks))
        taken = next((task for task, run in ids.items() if known.get(task, run) != run), None)
        if taken is not None:
            raise Invalid(f"The plan {plan} has a task {taken} already; give the new one another id.")
        self._open(plan, "", "", 0, "", "", "")
        try:
            self._submit(plan, ordered, known | ids, record.on_failed)
        finally:
            if record.sealed:
                self._seal(plan)
        return ids

    def cancel(self, plan: str, why: str = "cancelled on request") -> PlanRecord:
        """Let nothing more of it begin, and stop what runs; it has ended when the workers have confirmed that."""
        words = (plan, f"its plan was cancelled: {why}"[: bounds.ERROR_CHARACTERS])
        self._until_done(plan, lambda: self.store.call("plan/cancel", self.partition(plan), *words))
        return self.get(plan)

    def retry(
        self, plan: str, which: RetrySelection = "failed", *, task: str | None = None, operation: str = ""
    ) -> PlanRecord:
        """Let tasks that failed begin again, or also the cancelled, or one; and with them what was skipped for them."""
        operation, mode = operation or self.store.nonce(), str(which)
        record = self.get(plan)
        self._restore_limit(record)
        if task is not None:
            run = self.runs(plan, [task]).get(task)
            if run is None:
                raise NotFound(f"The plan {plan} has no task {task}.")
            self.queue.requeue(run, operation=operation)
            mode = "skipped"
        elif which == "failed" and record.stopped:
            # What the stop has cancelled is what is missing.
            mode = "all"
        words = (plan, mode, operation)
        self._until_done(plan, lambda: self.store.call("plan/retry", self.partition(plan), *words))
        return self.get(plan)

    def wait(self, plan: str, outcomes: RunEndWaiter, timeout_ms: int | None = None) -> PlanRecord:
        """The plan, once it has ended."""

        def look() -> tuple[PlanRecord | None, str]:
            found = self.get(plan)
            return found if found.ended else None, found.state

        return outcomes.wait_for(f"plan {plan}", self.partition(plan), look, timeout_ms)

    def forget(self, plan: str) -> None:
        """Delete an ended plan and its tasks before their time."""
        record = self.get(plan)
        if record.ended is None:
            raise WrongState(f"The plan {plan} is {record.state}; only one that has ended can be forgotten.")
        while True:
            page, _ = self.tasks(plan, limit=bounds.SWEEP_PER_CALL)
            if not page:
                return
            refused = self.queue.forget([(task.run, task.state) for task in page])
            first = next((error for error in refused if error is not None and not isinstance(error, NotFound)), None)
            if first is not None:
                raise first

    # ---- how it is done

    def _create_from(
        self, plan: str, header: PlanHeader, tasks: Sequence[TaskSubmission], source: str, *, durable: bool = False
    ) -> None:
        self.create(
            header.name,
            tasks,
            plan=plan,
            on_failed=header.on_failed,
            source=source,
            budget_usd=header.budget_usd,
            given=header.given,
            durable=durable,
        )

    def _limit_parallel(self, plan: str, header: PlanHeader) -> None:
        if header.max_parallel is not None:
            Limits(self.store).set(f"{PLAN_LIMIT}{plan}", most=header.max_parallel)

    def _restore_limit(self, record: PlanRecord) -> None:
        """A plan that goes on after its end has its limit again."""
        if record.ended is not None:
            self._limit_parallel(record.id, self.header(record.id))

    def _open(self, plan: str, *words: CommandArgument, durable: bool = False) -> int:
        call = self.store.call_durably if durable else self.store.call
        reply = call("plan/create", self.partition(plan), plan, *words)
        if isinstance(reply, str):
            raise refusal_error(reply, f"plan {plan}") or AssertionError(reply)
        return int(reply[1])

    def _ids(self, plan: str, created_at_ms: int, tasks: Iterable[tuple[int, str]]) -> dict[str, str]:
        """The runs of tasks at these places of a plan; the same whenever they are asked for."""
        partition = self.partition(plan)
        # A plan of an earlier version has no secret.
        secret = self.store.connection.command("HGET", self.store.key(partition, "plan", plan), "secret") or ""
        return {task: make_task_run_id(partition, created_at_ms, at, f"{plan}{secret}", task) for at, task in tasks}

    def _seal(self, plan: str, *, durable: bool = False) -> None:
        call = self.store.call_durably if durable else self.store.call
        refused = refusal_error(call("plan/seal", self.partition(plan), plan), f"plan {plan}")
        if refused is not None:
            raise refused

    def _submit(
        self, plan: str, tasks: Sequence[TaskSubmission], ids: dict[str, str], on_failed: OnFailedPolicy
    ) -> None:
        specs = (_task_spec(plan, task, ids, on_failed) for task in tasks)
        receipts = self.queue.submit_many(specs, run_ids=[ids[task.id] for task in tasks], batch=bounds.TASKS_PER_CALL)
        refused: AgentqError | None = None
        for receipt in receipts:
            refused = refused or receipt.refused
        if refused is not None:
            raise refused

    def _until_done(self, plan: str, call: Callable[[], str]) -> None:
        for _ in range(bounds.PLAN_TASKS):
            reply = call()
            refused = refusal_error(reply, f"plan {plan}")
            if refused is not None:
                raise refused
            if reply == "ok 0":
                return
            # What is still to be told how a task ended is in its way.
            self.store.call("duty/notify_dependents", self.partition(plan))
        raise TryLater(f"The plan {plan} is still at it; the duties go on with it.")


def make_plan_id(name: str) -> str:
    """Make the id of a new plan: its name, and something that no other has."""
    return f"{check_plan_name(name)[: bounds.NAME_LENGTH - 10]}-{new_nonce()}"


def _sort_tasks(tasks: Sequence[TaskSubmission], known: Collection[str] = ()) -> list[TaskSubmission]:
    for task in tasks:
        check_plan_name(task.id, "a task")
    names = {*known, *(task.id for task in tasks)}
    for task in tasks:
        unknown = next((name for name in task.inputs if name not in names), None)
        if unknown is not None:
            raise Invalid(f"The task {task.id} takes something from {unknown}, which there is no task of.")
    return sort_by_needs(tasks, known)


def _compress_source(source: str) -> str:
    packed = b64encode(compress(source.encode(), 6)).decode() if source else ""
    if len(packed) > bounds.PLAN_SOURCE_BYTES:
        raise Invalid(
            f"What the plan was made from has {len(packed)} bytes, compressed; {bounds.PLAN_SOURCE_BYTES} is the most. "
            "Pass large prompts as files."
        )
    return packed


def _task_spec(plan: str, task: TaskSubmission, ids: dict[str, str], on_failed: OnFailedPolicy) -> RunSpec:
    """The run of a task, with what follows from its place in the plan."""
    more: dict[str, Any] = {"plan": plan, "task": task.id}
    if task.needs:
        more["after"] = tuple(ids[need] for need in task.needs)
    if task.inputs:
        more["inputs"] = {name: ids[name] for name in task.inputs}
    if on_failed == "run" and "on_failed" not in task.spec.model_fields_set:
        more["on_failed"] = "run"
    return task.spec.model_copy(update=more)
