"""From the tree of a file to a model: each fault with its place, in the words of a plan."""

from __future__ import annotations

import re
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from agentq.coordinator.fields import SAID, said
from agentq.planning.faults import Fault, nearest, shown
from agentq.planning.tree import Table, place_of

M = TypeVar("M", bound=BaseModel)

KINDS = {
    "dict_type": "it should be a mapping",
    "list_type": "it should be a list",
    "tuple_type": "it should be a list",
    "string_type": "it should be text; put it between quotes",
    "bool_type": "it should be true or false",
    "int_type": "it should be a whole number",
    "float_type": "it should be a number",
    "model_type": "it should be a mapping",
    "model_attributes_type": "it should be a mapping",
    "string_unicode": "this is not valid UTF-8",
}
_CHOICES = re.compile(r"'([^']*)'")


def checked(model: type[M], table: Table, faults: list[Fault]) -> M | None:
    """The model of a table; None if it cannot be made. What is wrong is noted down."""
    strange: list[Fault] = []
    try:
        return model.model_validate(table, context=strange)
    except ValidationError as error:
        found = [_fault(each, table) for each in error.errors(include_url=False) if not (strange and _whole(each))]
        faults += found
        return None
    finally:
        faults += strange


def _whole(error: Any) -> bool:
    """Whether it is of a mapping as a whole, where a key that is misspelt may be the one that is missed."""
    return error["type"] == "missing" or not error["loc"]


def _fault(error: Any, table: Table) -> Fault:
    keys = error["loc"]
    place, path = place_of(table, keys)
    if error["type"] == "missing":
        return Fault(place, path, f"it needs the key {keys[-1]!r}")
    if error["type"] == "literal_error":
        expected = error["ctx"]["expected"]
        hint = nearest(str(error["input"]), _CHOICES.findall(expected))
        return Fault(place, path, f"it should be {expected}, not {shown(str(error['input']))}", hint)
    if error["type"] == "string_pattern_mismatch":
        pattern, given = error["ctx"]["pattern"], str(error["input"])
        joined = "-".join(given.split())
        hint = f"Did you mean {joined!r}?" if re.search(pattern, joined) else ""
        return Fault(place, path, f"{shown(given)} cannot stand here: {SAID[pattern]}", hint)
    return Fault(place, path, (KINDS.get(error["type"]) or said(error)).rstrip("."))
