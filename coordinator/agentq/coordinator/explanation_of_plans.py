"""What its plan has to do with where a run is, and who stands before it where branches are moved."""

from __future__ import annotations

import re
from collections.abc import Iterator

from agentq.coordinator.errors import NotFound
from agentq.coordinator.identity import partition_of
from agentq.coordinator.life import Run
from agentq.coordinator.lifecycle import State
from agentq.coordinator.plan_records import PlanRecords
from agentq.coordinator.records import Records
from agentq.coordinator.store import Store


def task_of(run: Run) -> str:
    """How a run is named beside its id, if it is a task: `, the task build`."""
    return f", the task {run.spec.task}" if run.spec.task is not None else ""


def place_in_plan(store: Store, run: Run) -> Iterator[str]:
    """Which task of which plan a run is, and how that is."""
    if run.spec.task is None or run.spec.plan is None:
        return
    try:
        plan = PlanRecords(store).get(run.spec.plan)
    except NotFound:
        return
    why = f", because {plan.stopped_why}" if plan.stopped else ""
    yield f"It is the task {run.spec.task} of the plan {plan.id}, which is {plan.state}{why}."
    if plan.state == "open":
        yield f"Not all of that plan was submitted; `agentq plan resume {plan.id}` completes it."
    elif plan.stopped and plan.ended:
        yield f"`agentq plan retry {plan.id}` lets it go on."


def skipped_for(records: Records, run: Run) -> Iterator[str]:
    """What a run was skipped for, and that it comes back with that."""
    said = run.outcome.error if run.outcome is not None and run.state is State.SKIPPED else None
    found = re.match(r"dependency (run_\w+) is ", said or "")
    if found is None:
        return
    parent = found[1]
    try:
        name = task_of(records.get(parent))
    except NotFound:
        return
    yield f"It was skipped for {parent}{name}; `agentq why {parent}` tells more."
    if run.spec.task is not None:
        yield f"`agentq retry {parent}` lets both begin again."


def turn_to_merge(store: Store, run: Run) -> Iterator[str]:
    """Whether a run that is held waits for its turn to move a branch."""
    partition, command = partition_of(run.id), store.connection.command
    line = command("HGET", store.key(partition, "run", run.id), "merging")
    key = store.key(partition, "merge_queue", line or "")
    place = command("ZRANK", key, run.id) if line else None
    if place is None:
        return
    if place == 0:
        yield "It is its turn to move its branch."
        return
    first = command("ZRANGE", key, 0, 0)[0]
    yield f"It waits for its turn to move its branch, with {place} before it; {first} is at it."
