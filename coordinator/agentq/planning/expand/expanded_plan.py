"""The result of expanding a plan: complete tasks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from agentq.planning.errors import PlanProblem
from agentq.planning.model import PlanDefinition, TaskDefinition
from agentq.planning.read.source_tree import SourceTable


class TaskInstance(NamedTuple):
    """A complete task, its position, and the task of the file from which it was expanded."""

    task: TaskDefinition
    table: SourceTable
    group: str
    values: tuple[str, ...]


class TaskNeeds(NamedTuple):
    """A task with its needs, whether or not the rest of it is valid."""

    id: str
    table: SourceTable
    needs: Sequence[str]
    group: str
    """The task of the file from which it was expanded."""


class ExpandedPlan(NamedTuple):
    """A plan with all of its tasks."""

    plan: PlanDefinition
    table: SourceTable
    tasks: list[TaskInstance]
    folder: Path
    name: str
    done: frozenset[str]
    """Ids of tasks that the file marks as completed; they are not run again."""
    empty: frozenset[str]
    """Ids of tasks whose matrix or foreach has no values."""
    sample: TaskInstance | None
    """A task with nothing but the defaults, for tasks that are added later."""
    broken: Sequence[TaskNeeds] = ()
    """Tasks that are invalid."""
    faults: Sequence[PlanProblem] = ()
    """The faults found so far."""
