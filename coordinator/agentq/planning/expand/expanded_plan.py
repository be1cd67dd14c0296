"""What the files of a plan come to: tasks that stand for themselves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from agentq.planning.errors import PlanProblem
from agentq.planning.model import PlanDefinition, TaskDefinition
from agentq.planning.read.source_tree import SourceTable


class TaskInstance(NamedTuple):
    """A task that stands for itself, where it is written, and which task of the file it is one of."""

    task: TaskDefinition
    table: SourceTable
    group: str
    values: tuple[str, ...]


class TaskNeeds(NamedTuple):
    """A task with what it says that it needs, whether or not the rest of it makes sense."""

    id: str
    table: SourceTable
    needs: Sequence[str]
    group: str
    """Which task of the file it is one of."""


class ExpandedPlan(NamedTuple):
    """A plan with all of its tasks."""

    plan: PlanDefinition
    table: SourceTable
    tasks: list[TaskInstance]
    folder: Path
    name: str
    done: frozenset[str]
    """Ids that were written down as completed; nothing is done for them again."""
    empty: frozenset[str]
    """Ids of those that a matrix or foreach without values spreads out to nothing."""
    sample: TaskInstance | None
    """A task of which nothing is said, with what holds for all: how one works that is added later."""
    broken: Sequence[TaskNeeds] = ()
    """Tasks with which something is wrong."""
    faults: Sequence[PlanProblem] = ()
    """What is wrong, as far as reading finds it."""
