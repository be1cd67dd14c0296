"""The submit order of tasks: each after its dependencies, otherwise as given."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Protocol, TypeVar

from agentq.coordinator.errors import Invalid

CYCLE_TASKS_SHOWN = 10
"""Tasks of a circle that are named."""


class TaskWithNeeds(Protocol):
    """What has an id and needs others."""

    @property
    def id(self) -> str: ...
    @property
    def needs(self) -> Sequence[str]: ...


AnyTask = TypeVar("AnyTask", bound=TaskWithNeeds)


def sort_by_needs(tasks: Sequence[AnyTask], known: Collection[str] = ()) -> list[AnyTask]:
    """The same tasks, each after those that it needs; `known` are needed from elsewhere and are there already."""
    by_id = {task.id: task for task in tasks}
    if len(by_id) < len(tasks):
        seen: set[str] = set()
        twice = next(task.id for task in tasks if task.id in seen or seen.add(task.id))  # type: ignore[func-returns-value]
        raise Invalid(f"Two tasks have the id {twice}.")
    ordered: list[AnyTask] = []
    done: set[str] = set(known) - by_id.keys()
    for task in tasks:
        if task.id not in done:
            _append_after_needs(task, by_id, done, ordered)
    return ordered


def _append_after_needs(task: AnyTask, by_id: dict[str, AnyTask], done: set[str], ordered: list[AnyTask]) -> None:
    """Put a task behind all that it needs; without recursion, since a chain of tasks may be long."""
    path: dict[str, Iterator[str]] = {task.id: iter(task.needs)}
    while path:
        present = next(reversed(path))
        need = next((need for need in path[present] if need not in done), None)
        if need is None:
            del path[present]
            done.add(present)
            ordered.append(by_id[present])
        elif need not in by_id:
            raise Invalid(f"The task {present} needs {need}, which there is no task of.")
        elif need in path:
            names = list(path)
            circle = [*names[names.index(need) :], need]
            more = f" (of {len(circle) - 1})" if len(circle) > CYCLE_TASKS_SHOWN else ""
            raise Invalid(f"Tasks need each other in a circle: {' -> '.join(circle[:CYCLE_TASKS_SHOWN])}{more}.")
        else:
            path[need] = iter(by_id[need].needs)
