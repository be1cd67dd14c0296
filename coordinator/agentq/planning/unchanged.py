"""Which tasks of an edited plan need not be done again, because an earlier plan of the same file has done them.

A task is done if it completed there, nothing of it has changed since, and the same holds for all that it needs. What
other tasks take from it is taken from its run of that time.
"""

from __future__ import annotations

import json
from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b

from agentq.coordinator.demands import PLAN
from agentq.planning.compiling import Planned

DIGEST_BYTES = 6


def shapes_of(tasks: Sequence[Planned], plan: str) -> dict[str, str]:
    """All that makes each task, but for the id of its plan, as a digest."""
    return {task.id: _shape(task, plan) for task in tasks}


def _shape(task: Planned, plan: str) -> str:
    spec = task.spec.model_dump(mode="json", exclude_defaults=True)
    demands = {name: value for name, value in spec.pop("demands", {}).items() if name != PLAN}
    text = json.dumps([spec, demands, task.needs, task.inputs], sort_keys=True).replace(plan, "")
    return blake2b(text.encode(), digest_size=DIGEST_BYTES).hexdigest()


def unchanged(
    tasks: Sequence[Planned], shapes: Mapping[str, str], before: Mapping[str, str], done: Container[str]
) -> list[str]:
    """Those of `done` that are what they were before, with all that they need; each task comes after those."""
    same: dict[str, None] = {}
    for task in tasks:
        is_same = task.id in done and before.get(task.id) == shapes[task.id]
        if is_same and all(need in same for need in task.needs):
            same[task.id] = None
    return list(same)


def without(tasks: Sequence[Planned], done: Container[str]) -> tuple[Planned, ...]:
    """The tasks that are left. They need not wait for what is done."""
    left = (task for task in tasks if task.id not in done)
    return tuple(replace(task, needs=tuple(need for need in task.needs if need not in done)) for task in left)
