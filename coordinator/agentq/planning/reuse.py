"""Finds tasks of an edited plan that an earlier plan of the same file has already completed.

A task is reused if it completed there, is unchanged since, and the same holds for all tasks that it needs. Its outputs
are those of the earlier run.
"""

from __future__ import annotations

import json
from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b

from agentq.coordinator.model.demands import PLAN_LABEL
from agentq.planning.compiler import CompiledTask

DIGEST_BYTES = 6


def digest_tasks(tasks: Sequence[CompiledTask], plan: str) -> dict[str, str]:
    """A digest of each task, without the id of its plan."""
    return {task.id: _digest_task(task, plan) for task in tasks}


def _digest_task(task: CompiledTask, plan: str) -> str:
    spec = task.spec.model_dump(mode="json", exclude_defaults=True)
    demands = {name: value for name, value in spec.pop("demands", {}).items() if name != PLAN_LABEL}
    text = json.dumps([spec, demands, task.needs, task.inputs], sort_keys=True).replace(plan, "")
    return blake2b(text.encode(), digest_size=DIGEST_BYTES).hexdigest()


def unchanged_tasks(
    tasks: Sequence[CompiledTask], shapes: Mapping[str, str], before: Mapping[str, str], done: Container[str]
) -> list[str]:
    """The tasks of `done` that are unchanged, with all that they need; `tasks` is in topological order."""
    same: dict[str, None] = {}
    for task in tasks:
        is_same = task.id in done and before.get(task.id) == shapes[task.id]
        if is_same and all(need in same for need in task.needs):
            same[task.id] = None
    return list(same)


def remove_done_tasks(tasks: Sequence[CompiledTask], done: Container[str]) -> tuple[CompiledTask, ...]:
    """The remaining tasks, without needs that are done."""
    left = (task for task in tasks if task.id not in done)
    return tuple(replace(task, needs=tuple(need for need in task.needs if need not in done)) for task in left)
