"""Reasons for waiting that come from a plan or from a merge queue."""

from __future__ import annotations

import re
from collections.abc import Iterator

from agentq.coordinator.errors import NotFound
from agentq.coordinator.model.ids import partition_of
from agentq.coordinator.model.lifecycle import State
from agentq.coordinator.plans.queries import PlanQueries
from agentq.coordinator.runs.queries import RunQueries
from agentq.coordinator.runs.run_record import RunRecord
from agentq.coordinator.storage.store import NamespaceStore


def format_task(run: RunRecord) -> str:
    """The words that follow a run's id if it is a task: `, the task build`."""
    return f", the task {run.spec.task}" if run.spec.task is not None else ""


def explain_plan_task(store: NamespaceStore, run: RunRecord) -> Iterator[str]:
    """The task and the plan of a run, and the plan's state."""
    if run.spec.task is None or run.spec.plan is None:
        return
    try:
        plan = PlanQueries(store).get(run.spec.plan)
    except NotFound:
        return
    why = f", because {plan.stopped_why}" if plan.stopped else ""
    yield f"It is the task {run.spec.task} of the plan {plan.id}, which is {plan.state}{why}."
    if plan.state == "open":
        yield f"Not all of that plan was submitted; `agentq plan resume {plan.id}` completes it."
    elif plan.stopped and plan.ended:
        yield f"`agentq plan retry {plan.id}` continues it."


def explain_skip(records: RunQueries, run: RunRecord) -> Iterator[str]:
    """The dependency for which a run was skipped; a retry of that one starts this one again."""
    error = run.outcome.error if run.outcome is not None and run.state is State.SKIPPED else None
    found = re.match(r"dependency (run_\w+) is ", error or "")
    if found is None:
        return
    parent = found[1]
    try:
        name = format_task(records.get(parent))
    except NotFound:
        return
    yield f"It was skipped for {parent}{name}; `agentq why {parent}` explains that run."
    if run.spec.task is not None:
        yield f"`agentq retry {parent}` starts both again."


def explain_merge_turn(store: NamespaceStore, run: RunRecord) -> Iterator[str]:
    """The place of a held run in a merge queue."""
    partition, command = partition_of(run.id), store.connection.command
    line = command("HGET", store.key(partition, "run", run.id), "merge_queue")
    key = store.key(partition, "merge_queue", line or "")
    place = command("ZRANK", key, run.id) if line else None
    if place is None:
        return
    if place == 0:
        yield "It is the first in the merge queue of its branch."
        return
    first = command("ZRANGE", key, 0, 0)[0]
    yield f"It waits in the merge queue of its branch, with {place} before it; {first} is the first."
