"""The summary of a plan that has ended or is no longer worked on: the result of each task, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from agentq.cli.connect import print_note
from agentq.cli.main import INTERRUPTED
from agentq.cli.plans.view import format_cost, format_counts, format_run_time, merge_instructions, state_word
from agentq.cli.plans.watch import PlanWatch
from agentq.cli.render import clean, paint, print_json
from agentq.coordinator.clock import wall_ms
from agentq.coordinator.errors import NotFound
from agentq.coordinator.model.durations import format_duration
from agentq.coordinator.model.lifecycle import State
from agentq.coordinator.plans.source import PlanHeader
from agentq.coordinator.plans.verbs import TaskRecord
from agentq.coordinator.public_json.plans import plan_json, task_json
from agentq.coordinator.runs.run_record import RunRecord
from agentq.sdk.backend import Backend

TASKS_NAMED = 50
"""Tasks that are named one by one."""
INCOMPLETE_STATES = (State.FAILED, State.CANCELLED, State.SKIPPED)


class PlanSummary:
    """The end of it."""

    def __init__(
        self, backend: Backend, watch: PlanWatch, head: PlanHeader, trouble: str, *, interrupted: bool
    ) -> None:
        self._backend = backend
        self._watch = watch
        self._head = head
        self._trouble = trouble
        self._interrupted = interrupted

    @property
    def code(self) -> int:
        """0 if every task completed, 130 if it was interrupted, and else 1."""
        record = self._watch.record
        if record.ended is None:
            return INTERRUPTED if self._interrupted and not self._trouble else 1
        return 0 if record.counts.keys() <= {State.COMPLETED} else 1

    def print(self, *, json: bool) -> int:
        """Print it; the exit code."""
        if json:
            print_json(self._record())
        else:
            for line in self._lines():
                print(line, flush=True)
        plan = self._watch.plan
        if self._trouble:
            print_note(f"{self._trouble}.")
        if self._watch.record.ended is None:
            print_note(
                f"the plan has not ended; `agentq resume {plan}` goes on with it, and nothing that is done is redone."
            )
        return self.code

    def _record(self) -> dict[str, Any]:
        by_run = self._watch.tasks
        tasks = [
            {**task_json(task), "because": incomplete_reason(self._backend, by_run, task)} for task in by_run.values()
        ]
        head = self._head.model_dump(mode="json", include={"repository", "base", "target"})
        lasted_ms = (self._watch.record.ended_at_ms or wall_ms()) - self._watch.record.created_at_ms
        return {**plan_json(self._watch.record), **head, "duration_ms": lasted_ms, "tasks": tasks}

    def _lines(self) -> Iterator[str]:
        record, tasks = self._watch.record, list(self._watch.tasks.values())
        lasted = format_duration((record.ended_at_ms or wall_ms()) - record.created_at_ms)
        how = state_word(record) if record.ended else "has not ended"
        words = [f"{record.id} {how} after {lasted}", format_counts(record.counts), format_cost(tasks)]
        yield ": ".join(filter(None, [words[0], ", ".join(filter(None, words[1:]))])) + "."
        undone = [task for task in tasks if task.state in INCOMPLETE_STATES]
        yield from incomplete_task_lines(self._backend, self._watch.tasks)
        if len(undone) > TASKS_NAMED:
            yield f"  and {len(undone) - TASKS_NAMED} more; `agentq plan show {record.id}` names them."
        if any(task.state is State.FAILED for task in undone) and record.ended is not None:
            again = f"`agentq resume {record.id} --retry` lets what failed begin again"
            yield f"{again}; `agentq logs RUN` tells what a run wrote."
        yield from self._watch.works.lines(self._backend, self._watch.tasks)
        home = merge_instructions(self._head)
        if home and any(task.state is State.COMPLETED for task in tasks):
            yield home


def incomplete_task_lines(backend: Backend, tasks: Mapping[str, TaskRecord]) -> Iterator[str]:
    """Each task that did not complete, and why, as far as they are named; `tasks` are those of the plan, by run."""
    undone = [task for task in tasks.values() if task.state in INCOMPLETE_STATES][:TASKS_NAMED]
    width = max((len(task.id) for task in undone), default=0)
    for task in undone:
        state = task.state.value
        reason = clean(incomplete_reason(backend, tasks, task))
        yield f"  {paint(state)}{'':{10 - len(state)}}{task.id:{width}}  {reason}".rstrip()


def incomplete_reason(backend: Backend, tasks: Mapping[str, TaskRecord], task: TaskRecord) -> str:
    """Why a task did not complete; `tasks` are those of its plan, by run."""
    if task.state not in INCOMPLETE_STATES:
        return ""
    try:
        run = backend.get(task.run)
    except NotFound:
        return task.reason
    if task.state is State.SKIPPED:
        return _skip_reason(run, tasks)
    outcome = run.outcome
    error = (outcome.error if outcome else None) or run.reason
    class_ = f"{outcome.class_}" if outcome and task.state is State.FAILED else ""
    times = f"after {run.attempt} attempts" if run.attempt > 1 else ""
    lasted = f"in {format_run_time(task)}" if format_run_time(task) and task.state is State.FAILED else ""
    return "; ".join(
        filter(None, [": ".join(filter(None, [class_, error])), " ".join(filter(None, [times, lasted])), run.id])
    )


def _skip_reason(run: RunRecord, tasks: Mapping[str, TaskRecord]) -> str:
    """Which of the tasks that it needs did not complete."""
    missing = [tasks[each] for each in run.spec.after if each in tasks and tasks[each].state in INCOMPLETE_STATES]
    told = ", ".join(f"{task.id} ({task.state.value})" for task in missing[:5])
    return f"needs {told}" if told else run.reason
