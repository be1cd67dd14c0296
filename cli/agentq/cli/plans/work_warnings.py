"""What to look at though all tasks completed: removed work of others, and agents that changed nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from agentq.cli.render import clean
from agentq.coordinator.errors import NotFound
from agentq.coordinator.model.lifecycle import State
from agentq.coordinator.model.workspace import DeliveredWork
from agentq.coordinator.plans.verbs import TaskRecord
from agentq.coordinator.runs.run_record import RunRecord
from agentq.sdk.backend import Backend

TASKS_NAMED = 20
RUNS_READ_MAX = 1_000
"""Runs read at the end, of those that ended before watching began."""


@dataclass
class WorkWarnings:
    """What completed tasks have delivered, as far as it is told to people."""

    removes: dict[str, DeliveredWork] = field(default_factory=dict)
    """By run: work that removes what other tasks made."""
    idle: set[str] = field(default_factory=set)
    """Runs of agents that changed nothing."""
    _known: set[str] = field(default_factory=set)

    def note(self, run: RunRecord) -> None:
        """Record the warnings about a run that has ended."""
        self._known.add(run.id)
        work = run.outcome.work if run.outcome is not None else None
        if changed_nothing(run):
            self.idle.add(run.id)
        if work is not None and work.removes:
            self.removes[run.id] = work

    def lines(self, backend: Backend, tasks: Mapping[str, TaskRecord]) -> Iterator[str]:
        """A sentence for each thing to look at; `tasks` are those of the plan, by run."""
        completed = [task for task in tasks.values() if task.state is State.COMPLETED]
        for task in [task for task in completed if task.run not in self._known][:RUNS_READ_MAX]:
            try:
                self.note(backend.get(task.run))
            except NotFound:
                continue
        for task in completed:
            if (work := self.removes.get(task.run)) is not None:
                yield clean(f"{task.id} removes what other tasks of the plan made: {', '.join(work.removes)}.")
        idle = [task.id for task in completed if task.run in self.idle]
        if idle:
            more = f" and {len(idle) - TASKS_NAMED} more" if idle[TASKS_NAMED:] else ""
            yield clean(f"changed nothing: {', '.join(idle[:TASKS_NAMED])}{more}.")


def changed_nothing(run: RunRecord) -> bool:
    """Whether an agent that had a worktree completed without a change."""
    work = run.outcome.work if run.outcome is not None else None
    return run.spec.kind == "agent" and run.state is State.COMPLETED and work is not None and work.commit is None
