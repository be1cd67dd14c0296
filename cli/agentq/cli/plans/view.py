"""A plan as people see it: in a list, in full, and summed up when it has ended."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from agentq.cli.render import bold, clean, on_terminal, paint, print_pairs, print_table
from agentq.cli.show.cost import format_dollars
from agentq.coordinator.clock import wall_ms
from agentq.coordinator.model.durations import format_duration, format_iso
from agentq.coordinator.model.lifecycle import TERMINAL_STATES, State

if TYPE_CHECKING:
    from agentq.coordinator.plans.source import PlanHeader
    from agentq.coordinator.plans.verbs import PlanRecord, TaskRecord

STATE_ORDER = (
    "completed",
    "failed",
    "cancelled",
    "skipped",
    "running",
    "claimed",
    "waiting",
    "pending",
    "scheduled",
    "blocked",
)


def state_word(plan: PlanRecord) -> str:
    """How a plan stands, in a word."""
    like = {"stopping": "cancelled", "open": "scheduled"}.get(plan.state, plan.state)
    return paint(plan.state, like=like)


def format_counts(counts: Mapping[State, int]) -> str:
    """How many tasks are in each state: 3 completed, 1 failed."""
    by_name = {state.value: count for state, count in counts.items()}
    return ", ".join(f"{by_name[name]} {name}" for name in STATE_ORDER if by_name.get(name))


def plan_row(plan: PlanRecord) -> list[str]:
    """A plan in a list."""
    done = sum(count for state, count in plan.counts.items() if state in TERMINAL_STATES)
    made = f"{format_duration(wall_ms() - plan.created_at_ms)} ago" if on_terminal() else format_iso(plan.created_at_ms)
    return [plan.id, plan.state, f"{done}/{plan.tasks}", made, format_counts(plan.counts)]


def print_plan(plan: PlanRecord, head: PlanHeader, tasks: Sequence[TaskRecord]) -> None:
    """All that is known of it."""
    why = f": {clean(plan.stopped_why)}" if plan.stopped_why else ""
    print(f"{bold(plan.id)}  {state_word(plan)}{why}")
    print_pairs(_plan_pairs(plan, head, tasks), indent=2)
    if tasks:
        print()
        heads = ["task", "state", "agent", "run", "took", "cost", "reason"]
        print_table(heads, [_task_row(task) for task in tasks], spare=("cost", "took", "reason"))


def _plan_pairs(plan: PlanRecord, head: PlanHeader, tasks: Sequence[TaskRecord]) -> Iterator[tuple[str, str]]:
    yield "tasks", format_counts(plan.counts)
    if not plan.sealed and plan.tasks < plan.expected:
        yield "missing", f"{plan.expected - plan.tasks} tasks, since its submit was cut; `agentq resume` completes it"
    yield "file", head.file
    yield "repository", head.repository or ""
    yield "base", head.base or ""
    yield "target", head.target or ""
    yield "on failed", "" if plan.on_failed == "skip" else plan.on_failed
    yield "at once", str(head.max_parallel or "")
    yield "cost", format_cost(tasks) + (f" of {format_dollars(head.budget_usd)}" if head.budget_usd else "")
    yield "made", f"{format_iso(plan.created_at_ms)}, {format_duration(wall_ms() - plan.created_at_ms)} ago"
    if plan.ended_at_ms is not None:
        yield "ended", f"{format_iso(plan.ended_at_ms)}, after {format_duration(plan.ended_at_ms - plan.created_at_ms)}"


def format_cost(tasks: Iterable[TaskRecord]) -> str:
    """What tasks have cost together; nothing where nothing was spent."""
    known, unknown = sum_cost_usd(tasks)
    if not known and not unknown:
        return ""
    return f"at least {format_dollars(known)}" if unknown else format_dollars(known)


def sum_cost_usd(tasks: Iterable[TaskRecord]) -> tuple[float, bool]:
    """The known cost, and whether some of the cost is unknown."""
    spent = [task.spending for task in tasks if task.spending is not None]
    known = sum(each.cost_usd if each.cost_usd is not None else each.known_usd or 0 for each in spent)
    return known, any(each.cost_usd is None and (each.known_usd or each.input_tokens) for each in spent)


def _task_row(task: TaskRecord) -> list[str]:
    ended = f", {task.class_}" if task.class_ and task.state == "failed" else ""
    cost = format_cost([task])
    return [
        task.id,
        f"{task.state.value}{ended}" if not on_terminal() else task.state.value,
        task.agent or "",
        task.run,
        format_run_time(task),
        cost,
        task.reason,
    ]


def format_run_time(task: TaskRecord) -> str:
    """How long it ran, or has run until now."""
    if task.started_at_ms is None:
        return ""
    return format_duration((task.finished_at_ms or wall_ms()) - task.started_at_ms)


def merge_instructions(head: PlanHeader) -> str:
    """How the work of a plan gets to where its person is."""
    if not head.repository or not head.target:
        return ""
    from agentq.planning.repository import has_branch

    if head.local and not has_branch(head.repository, head.target):
        return ""  # nothing was merged
    if head.update_checkout:
        return f"The work is in {head.repository}, on the branch {head.target}."
    if not head.local:
        return f"The work is on the branch {head.target} of {head.repository}; `git fetch` brings it."
    if head.checked_out is None:
        return f"The work is on the branch {head.target} of {head.repository}."
    command = shlex.join(["git", "-C", head.repository, "merge", head.target])
    return f"The work is on the branch {head.target} of {head.repository}; `{command}` brings it into the checkout."
