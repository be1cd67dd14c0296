"""One task that stands for several: of a matrix, one for each combination; of a `foreach`, one for each value.

Their ids are made of the task's id and the values: `build-py311-linux`. In `needs`, `build` is all of them, and
`build[py311]` those with that value.
"""

from __future__ import annotations

import re
from itertools import product
from math import prod
from typing import Any, NamedTuple

from agentq.coordinator.limits import MATRIX_TASKS, NAME_LENGTH
from agentq.planning.document import kind_of
from agentq.planning.faults import Fault, nearest, shown
from agentq.planning.filling import Filling
from agentq.planning.tree import Row, Table, plain, text_of

EXCLUDE = "exclude"

_UNFIT = re.compile(r"[^A-Za-z0-9_.@+-]+")


class Copy(NamedTuple):
    """One of the tasks that a task stands for: the values that tell it from the others, and what expressions see."""

    values: tuple[str, ...]
    scope: dict[str, Any]


def copies(task: Table, filling: Filling, faults: list[Fault]) -> list[Copy] | None:
    """What a task is spread out to; itself, if it has neither matrix nor foreach. None if they are wrong."""
    if "matrix" in task and "foreach" in task:
        faults.append(Fault(task.key_at("foreach"), task.path, "a task has either matrix or foreach, not both"))
        return None
    for key, spread in (("matrix", _matrix), ("foreach", _foreach)):
        if key in task:
            said = filling.fill(task[key], task.value_at(key), task.path_of(key))
            return spread(task, said, faults)
    return [Copy((), {})]


def id_of(task: str, copy: Copy) -> str:
    """What one of them is called."""
    return "-".join([task, *(_UNFIT.sub("-", value).strip("-") or "x" for value in copy.values)])[:NAME_LENGTH]


def _matrix(task: Table, said: Any, faults: list[Fault]) -> list[Copy] | None:
    at, path = task.value_at("matrix"), task.path_of("matrix")
    if not isinstance(said, Table):
        faults.append(Fault(at, path, f"a matrix is a mapping of names to lists of values, not {kind_of(said)}"))
        return None
    if not said.keys() - {EXCLUDE}:
        faults.append(Fault(at, path, "a matrix needs a name with a list of values"))
        return None
    axes = {name: values for name, values in said.items() if name != EXCLUDE}
    for name, values in axes.items():
        if not isinstance(values, list) or any(isinstance(value, list | dict) for value in values):
            faults.append(Fault(said.value_at(name), said.path_of(name), "it should be a list of single values"))
            return None
    if prod(map(len, axes.values())) > MATRIX_TASKS:
        faults.append(Fault(at, path, f"this makes more than {MATRIX_TASKS} tasks, which is the most"))
        return None
    excluded = _excluded(said, list(axes), faults)
    rows = [dict(zip(axes, row, strict=True)) for row in product(*axes.values())]
    kept = [row for row in rows if not any(_fits(row, each) for each in excluded)]
    return [Copy(tuple(map(text_of, row.values())), {"matrix": row}) for row in kept]


def _excluded(matrix: Table, axes: list[str], faults: list[Fault]) -> list[dict[str, Any]]:
    said = matrix.get(EXCLUDE, [])
    if not isinstance(said, list) or not all(isinstance(each, Table) for each in said):
        sentence = "it should be a list of mappings of names to values"
        faults.append(Fault(matrix.value_at(EXCLUDE), matrix.path_of(EXCLUDE), sentence))
        return []
    for each in said:
        for name in each.keys() - set(axes):
            sentence = f"the matrix has no {shown(name)}"
            faults.append(Fault(each.key_at(name), each.path_of(name), sentence, nearest(name, axes)))
    return said


def _fits(row: dict[str, Any], pattern: dict[str, Any]) -> bool:
    return all(text_of(row.get(name)) == text_of(value) for name, value in pattern.items())


def _foreach(task: Table, said: Any, faults: list[Fault]) -> list[Copy] | None:
    at, path = task.value_at("foreach"), task.path_of("foreach")
    if not isinstance(said, Row):
        faults.append(Fault(at, path, f"foreach is a list, not {kind_of(said)}"))
        return None
    if len(said) > MATRIX_TASKS:
        faults.append(Fault(at, path, f"this makes more than {MATRIX_TASKS} tasks, which is the most"))
        return None
    return [Copy((_name(item, number),), {"item": item}) for number, item in enumerate(said, 1)]


def _name(item: Any, number: int) -> str:
    """What tells a value from the others: itself, its id or name, the first text in it, or its place."""
    if isinstance(item, dict):
        single = [value for value in plain(item).values() if not isinstance(value, list | dict)]
        found = item.get("id", item.get("name", single[0] if single else number))
        return text_of(found) if not isinstance(found, list | dict) else str(number)
    return str(number) if isinstance(item, list) else text_of(item)
