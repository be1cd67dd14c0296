"""Plans and their tasks, in public JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentq.coordinator.model.durations import format_iso
from agentq.coordinator.public_json import format_time

if TYPE_CHECKING:
    from agentq.coordinator.plans.verbs import PlanRecord, TaskRecord


def plan_json(plan: PlanRecord) -> dict[str, Any]:
    """A plan. `counts` has how many of its tasks are in each state in which there are any."""
    return {
        "id": plan.id,
        "name": plan.name,
        "state": plan.state,
        "on_failed": plan.on_failed,
        "tasks": plan.tasks,
        "expected": plan.expected,
        "counts": {state.value: count for state, count in plan.counts.items()},
        "stopped_why": plan.stopped_why or None,
        "made_by": plan.made_by or None,
        "created_at": format_iso(plan.created_at_ms),
        "ended_at": format_time(plan.ended_at_ms),
    }


def task_json(task: TaskRecord) -> dict[str, Any]:
    """A task of a plan."""
    return {
        "id": task.id,
        "run": task.run,
        "agent": task.agent,
        "state": task.state.value,
        "reason": task.reason or None,
        "attempt": task.attempt,
        "worker": task.worker or None,
        "claimed_at": format_time(task.claimed_at_ms),
        "started_at": format_time(task.started_at_ms),
        "finished_at": format_time(task.finished_at_ms),
        "class": task.class_.value if task.class_ else None,
        "cost_usd": task.spending.cost_usd if task.spending else None,
    }
