"""Builds the dependency graph of tasks: resolves ids, and rejects cycles with their path."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from agentq.coordinator.bounds import PLAN_EDGES
from agentq.planning.errors import InvalidPlan, PlanProblem, did_you_mean, quote_value
from agentq.planning.expand.expanded_plan import ExpandedPlan, TaskInstance, TaskNeeds
from agentq.planning.read.source_tree import find_position

CYCLE_SHOWN = 12
"""Tasks of a cycle that are shown."""
_SELECTOR = re.compile(r"([^\[\]]+)\[([^\[\]]*)\]")


class TaskGraph(NamedTuple):
    """The dependencies of each task, in the order of the tasks."""

    needs: dict[str, tuple[str, ...]]
    uncertain: frozenset[str] = frozenset()
    """Tasks with needs that name no task."""

    def ancestors(self, task: str) -> set[str]:
        """All tasks that must complete before a task."""
        found: set[str] = set()
        left = list(self.needs[task])
        while left:
            each = left.pop()
            if each not in found:
                found.add(each)
                left += self.needs.get(each, ())
        return found

    def order(self) -> list[str]:
        """The tasks in topological order, otherwise as written."""
        return [task for task in _topological_order(self.needs) if task in self.needs]


class TaskLookup:
    """Resolves the names in `needs` to tasks."""

    def __init__(self, tasks: Sequence[TaskInstance], known: Iterable[str] = (), empty: Iterable[str] = ()) -> None:
        self._ids = {each.task.id for each in tasks}
        self._known = set(known)
        self._groups: dict[str, list[TaskInstance]] = {task: [] for task in empty}
        for each in tasks:
            if each.values:
                self._groups.setdefault(each.group, []).append(each)

    def find(self, text: str) -> list[str] | None:
        """The ids of the named tasks; None if there is no such name."""
        if text in self._ids or text in self._known:
            return [text]
        if text in self._groups:
            return [each.task.id for each in self._groups[text]]
        if found := _SELECTOR.fullmatch(text):
            values = {value.strip() for value in found[2].split(",")}
            members = self._groups.get(found[1].strip(), ())
            return [each.task.id for each in members if values <= set(each.values)] or None
        return None

    def nearest(self, text: str) -> str:
        """A suggestion for an unknown name."""
        found = _SELECTOR.fullmatch(text)
        if found and (members := self._groups.get(found[1].strip())):
            return "There is " + ", ".join(f"{found[1]}[{','.join(each.values)}]" for each in members[:8])
        return did_you_mean(text, [*self._ids, *self._groups, *self._known])


def look_up_tasks(expanded: ExpandedPlan, live: Iterable[str] = ()) -> TaskLookup:
    """The lookup for a plan. `live` are the ids of tasks that the plan already has."""
    broken = (name for each in expanded.broken for name in (each.id, each.group))
    return TaskLookup(expanded.tasks, {*expanded.done, *live, *broken}, expanded.empty)


def build_graph(expanded: ExpandedPlan, lookup: TaskLookup) -> tuple[TaskGraph, list[PlanProblem]]:
    """The graph of a plan's tasks, and its faults: needs that name no task, and a cycle.

    Needs that are done already are dropped.
    """
    tasks = [TaskNeeds(each.task.id, each.table, each.task.needs, each.group) for each in expanded.tasks]
    tasks += expanded.broken
    faults: list[PlanProblem] = []
    needs: dict[str, tuple[str, ...]] = {}
    uncertain = set[str]()
    edges = 0
    for each in tasks:
        found: dict[str, None] = {}
        for number, text in enumerate(each.needs):
            ids = lookup.find(text)
            if ids is None:
                position, path = find_position(each.table, ("needs", number))
                faults.append(
                    PlanProblem(position, path, f"there is no task {quote_value(text)}", lookup.nearest(text))
                )
                uncertain.add(each.id)
            else:
                found |= dict.fromkeys(each for each in ids if each not in expanded.done)
        needs[each.id] = tuple(found)
        edges += len(found)
        if edges > PLAN_EDGES:
            raise InvalidPlan([PlanProblem(each.table.at, each.table.path, f"a plan has {PLAN_EDGES} needs at most")])
    if cycle := find_cycle(needs):
        first = next(each for each in tasks if each.id == cycle[0])
        position, path = find_position(first.table, ("needs",))
        hint = "Take one of these needs away"
        faults.append(PlanProblem(position, path, f"these tasks wait for each other: {_format_cycle(cycle)}", hint))
    return TaskGraph(needs, frozenset(uncertain)), faults


def _format_cycle(cycle: list[str]) -> str:
    shown_ids = cycle if len(cycle) <= CYCLE_SHOWN else [*cycle[: CYCLE_SHOWN - 2], "…", *cycle[-1:]]
    return " → ".join(shown_ids)


def find_cycle(needs: Mapping[str, Sequence[str]]) -> list[str]:
    """A dependency cycle, its first task again at the end; empty if there is none."""
    done: set[str] = set()
    for start in needs:
        visiting: dict[str, None] = {}
        stack: list[tuple[str, Iterator[str]]] = []
        if start not in done:
            visiting[start] = None
            stack.append((start, iter(needs[start])))
        while stack:
            task, rest = stack[-1]
            needed = next((each for each in rest if each not in done), None)
            if needed is None:
                done.add(task)
                del visiting[task]
                stack.pop()
            elif needed in visiting:
                ids = list(visiting)
                return [*ids[ids.index(needed) :], needed]
            else:
                visiting[needed] = None
                stack.append((needed, iter(needs.get(needed, ()))))
    return []


def _topological_order(needs: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Each task once, after its dependencies."""
    yielded: set[str] = set()
    for start in needs:
        stack = [start]
        while stack:
            task = stack[-1]
            open_ = [each for each in needs.get(task, ()) if each not in yielded]
            if task in yielded or not open_:
                stack.pop()
                if task not in yielded:
                    yielded.add(task)
                    yield task
            else:
                stack += reversed(open_)
