"""Validates a table as a model, and reports each fault with its position."""

from __future__ import annotations

import re
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from agentq.coordinator.model.field_types import PATTERN_MESSAGES, error_message
from agentq.planning.errors import PlanProblem, did_you_mean, quote_value
from agentq.planning.read.source_tree import SourceTable, find_position

M = TypeVar("M", bound=BaseModel)

TYPE_MESSAGES = {
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


def validate_table(model: type[M], table: SourceTable, faults: list[PlanProblem]) -> M | None:
    """The model of a table; None if it is invalid, with the faults recorded."""
    strange: list[PlanProblem] = []
    try:
        return model.model_validate(table, context=strange)
    except ValidationError as error:
        found = [
            _to_problem(each, table)
            for each in error.errors(include_url=False)
            if not (strange and _is_about_mapping(each))
        ]
        faults += found
        return None
    finally:
        faults += strange


def _is_about_mapping(error: Any) -> bool:
    """Whether the fault concerns a mapping as a whole: it may follow from a misspelt key, which is reported already."""
    return error["type"] == "missing" or not error["loc"]


def _to_problem(error: Any, table: SourceTable) -> PlanProblem:
    keys = error["loc"]
    position, path = find_position(table, keys)
    if error["type"] == "missing":
        return PlanProblem(position, path, f"it needs the key {keys[-1]!r}")
    if error["type"] == "literal_error":
        expected = error["ctx"]["expected"]
        hint = did_you_mean(str(error["input"]), _CHOICES.findall(expected))
        return PlanProblem(position, path, f"it should be {expected}, not {quote_value(str(error['input']))}", hint)
    if error["type"] == "string_pattern_mismatch":
        pattern, given = error["ctx"]["pattern"], str(error["input"])
        joined = "-".join(given.split())
        hint = f"Did you mean {joined!r}?" if re.search(pattern, joined) else ""
        return PlanProblem(position, path, f"{quote_value(given)} cannot stand here: {PATTERN_MESSAGES[pattern]}", hint)
    return PlanProblem(position, path, (TYPE_MESSAGES.get(error["type"]) or error_message(error)).rstrip("."))
