"""Plans and their tasks, in public JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentq.coordinator.model.durations import format_iso, parse_iso_ms
from agentq.coordinator.model.lifecycle import OutcomeClass, State
from agentq.coordinator.public_json import format_time, read_time
from agentq.coordinator.public_json.runs import spending_json

if TYPE_CHECKING:
    from agentq.coordinator.plans.verbs import PlanRecord, TaskRecord


def plan_json(plan: PlanRecord) -> dict[str, Any]:
    """A plan. `counts` has how many of its tasks are in each state in which there are any."""
    return {
        "id": plan.id,
        "name": plan.name,
        "state": plan.state,
        "sealed": plan.sealed,
        "stopped": plan.stopped,
        "retrying": plan.retrying,
        "on_failed": plan.on_failed,
        "tasks": plan.tasks,
        "expected": plan.expected,
        "counts": {state.value: count for state, count in plan.counts.items()},
        "stopped_why": plan.stopped_why or None,
        "made_by": plan.made_by or None,
        "created_at": format_iso(plan.created_at_ms),
        "ended_at": format_time(plan.ended_at_ms),
    }


def read_plan(record: dict[str, Any]) -> PlanRecord:
    """The record that `plan_json` wrote."""
    from agentq.coordinator.plans.queries import PlanRecord

    ended = record["ended_at"] is not None
    return PlanRecord(
        **{name: record[name] for name in ("id", "name", "on_failed", "sealed", "expected", "tasks", "stopped")},
        retrying=record["retrying"],
        counts={State(state): count for state, count in record["counts"].items()},
        created_at_ms=parse_iso_ms(record["created_at"]),
        stopped_why=record["stopped_why"] or "",
        ended=record["state"] if ended else None,
        ended_at_ms=read_time(record["ended_at"]),
        made_by=record["made_by"] or "",
    )


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
        "created_at": format_iso(task.submitted_at_ms),
        "claimed_at": format_time(task.claimed_at_ms),
        "started_at": format_time(task.started_at_ms),
        "finished_at": format_time(task.finished_at_ms),
        "class": task.class_.value if task.class_ else None,
        "cost_usd": task.spending.cost_usd if task.spending else None,
        "spent": None if task.spending is None else spending_json(task.spending),
    }


def read_task(record: dict[str, Any]) -> TaskRecord:
    """The record that `task_json` wrote."""
    from agentq.coordinator.model.spec import AgentSpending
    from agentq.coordinator.plans.queries import TaskRecord

    return TaskRecord(
        id=record["id"],
        run=record["run"],
        agent=record["agent"],
        state=State(record["state"]),
        attempt=record["attempt"],
        worker=record["worker"] or "",
        reason=record["reason"] or "",
        submitted_at_ms=parse_iso_ms(record["created_at"]),
        claimed_at_ms=read_time(record["claimed_at"]),
        started_at_ms=read_time(record["started_at"]),
        finished_at_ms=read_time(record["finished_at"]),
        class_=None if record["class"] is None else OutcomeClass(record["class"]),
        spending=None if record["spent"] is None else AgentSpending.model_validate(record["spent"]),
    )
