"""Expands a task with a matrix into one for each combination, and a task with `foreach` into one for each value.

The ids consist of the task's id and the values: `build-py311-linux`. In `needs`, `build` means all of them, and
`build[py311]` those with that value.
"""

from __future__ import annotations

import re
from itertools import product
from math import prod
from typing import Any, NamedTuple

from agentq.coordinator.bounds import MATRIX_TASKS, NAME_LENGTH
from agentq.planning.errors import PlanProblem, did_you_mean, quote_value
from agentq.planning.expand.templates import TemplateFiller
from agentq.planning.read.plan_file import describe_type
from agentq.planning.read.source_tree import SourceList, SourceTable, source_text, strip_positions

EXCLUDE_KEY = "exclude"

_INVALID_CHARACTERS = re.compile(r"[^A-Za-z0-9_.@+-]+")


class MatrixCell(NamedTuple):
    """One expanded task: the values that identify it, and the scope of its expressions."""

    values: tuple[str, ...]
    scope: dict[str, Any]


def expand_matrix(task: SourceTable, filler: TemplateFiller, faults: list[PlanProblem]) -> list[MatrixCell] | None:
    """The cells of a task; a single one if it has neither matrix nor foreach. None if these are invalid."""
    if "matrix" in task and "foreach" in task:
        faults.append(PlanProblem(task.key_at("foreach"), task.path, "a task has either matrix or foreach, not both"))
        return None
    for key, spread in (("matrix", _matrix_cells), ("foreach", _foreach_cells)):
        if key in task:
            value = filler.fill(task[key], task.value_at(key), task.path_of(key))
            return spread(task, value, faults)
    return [MatrixCell((), {})]


def matrix_task_id(task: str, copy: MatrixCell) -> str:
    """The id of an expanded task."""
    return "-".join([task, *(_INVALID_CHARACTERS.sub("-", value).strip("-") or "x" for value in copy.values)])[
        :NAME_LENGTH
    ]


def _matrix_cells(task: SourceTable, matrix: Any, faults: list[PlanProblem]) -> list[MatrixCell] | None:
    at, path = task.value_at("matrix"), task.path_of("matrix")
    if not isinstance(matrix, SourceTable):
        faults.append(
            PlanProblem(at, path, f"a matrix is a mapping of names to lists of values, not {describe_type(matrix)}")
        )
        return None
    if not matrix.keys() - {EXCLUDE_KEY}:
        faults.append(PlanProblem(at, path, "a matrix needs a name with a list of values"))
        return None
    axes = {name: values for name, values in matrix.items() if name != EXCLUDE_KEY}
    for name, values in axes.items():
        if not isinstance(values, list) or any(isinstance(value, list | dict) for value in values):
            faults.append(
                PlanProblem(matrix.value_at(name), matrix.path_of(name), "it should be a list of single values")
            )
            return None
    if prod(map(len, axes.values())) > MATRIX_TASKS:
        faults.append(PlanProblem(at, path, f"this makes more than {MATRIX_TASKS} tasks, which is the most"))
        return None
    excluded = _excluded_cells(matrix, list(axes), faults)
    rows = [dict(zip(axes, row, strict=True)) for row in product(*axes.values())]
    kept = [row for row in rows if not any(_matches_pattern(row, each) for each in excluded)]
    return [MatrixCell(tuple(map(source_text, row.values())), {"matrix": row}) for row in kept]


def _excluded_cells(matrix: SourceTable, axes: list[str], faults: list[PlanProblem]) -> list[dict[str, Any]]:
    patterns = matrix.get(EXCLUDE_KEY, [])
    if not isinstance(patterns, list) or not all(isinstance(each, SourceTable) for each in patterns):
        sentence = "it should be a list of mappings of names to values"
        faults.append(PlanProblem(matrix.value_at(EXCLUDE_KEY), matrix.path_of(EXCLUDE_KEY), sentence))
        return []
    for each in patterns:
        for name in each.keys() - set(axes):
            sentence = f"the matrix has no {quote_value(name)}"
            faults.append(PlanProblem(each.key_at(name), each.path_of(name), sentence, did_you_mean(name, axes)))
    return patterns


def _matches_pattern(row: dict[str, Any], pattern: dict[str, Any]) -> bool:
    return all(source_text(row.get(name)) == source_text(value) for name, value in pattern.items())


def _foreach_cells(task: SourceTable, items: Any, faults: list[PlanProblem]) -> list[MatrixCell] | None:
    at, path = task.value_at("foreach"), task.path_of("foreach")
    if not isinstance(items, SourceList):
        faults.append(PlanProblem(at, path, f"foreach is a list, not {describe_type(items)}"))
        return None
    if len(items) > MATRIX_TASKS:
        faults.append(PlanProblem(at, path, f"this makes more than {MATRIX_TASKS} tasks, which is the most"))
        return None
    return [MatrixCell((_item_name(item, number),), {"item": item}) for number, item in enumerate(items, 1)]


def _item_name(item: Any, number: int) -> str:
    """The name of a foreach value: itself, its id or name, the first scalar in it, or its index."""
    if isinstance(item, dict):
        single = [value for value in strip_positions(item).values() if not isinstance(value, list | dict)]
        found = item.get("id", item.get("name", single[0] if single else number))
        return source_text(found) if not isinstance(found, list | dict) else str(number)
    return str(number) if isinstance(item, list) else source_text(item)
