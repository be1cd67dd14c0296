"""What the files of a plan come to: tasks that stand for themselves."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from agentq.planning.model import Plan, Task
from agentq.planning.tree import Table


class Instance(NamedTuple):
    """A task that stands for itself, where it is written, and which task of the file it is one of."""

    task: Task
    table: Table
    group: str
    values: tuple[str, ...]


class Expanded(NamedTuple):
    """A plan with all of its tasks."""

    plan: Plan
    table: Table
    tasks: list[Instance]
    folder: Path
    name: str
    done: frozenset[str]
    """Ids that were written down as completed; nothing is done for them again."""
    empty: frozenset[str]
    """Ids of those that a matrix or foreach without values spreads out to nothing."""
    sample: Instance | None
    """A task of which nothing is said, with what holds for all: how one works that is added later."""
