"""Places in JSON that stand for something else.

    {"$run": id}                            among arguments: the result of that run
    {"$ref": …, "bytes": …, "sha256": …}    a whole result: it lies in a store
    {"$pickle": …, "hmac": …}               all arguments, or a whole result: a signed pickle

Only exactly these are read as references, and only in these places. A user's value that looks like one is refused where
it would be written; a JSON schema with its `$ref` is not.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from pydantic_core import PydanticSerializationError, to_json

from agentq.coordinator.errors import Invalid
from agentq.coordinator.model.field_types import RESULT_REFERENCE_KEY
from agentq.coordinator.model.ids import check_run_id

REFERENCE_MARK = '"$'
"""Without it there is no reference in a text."""
STORED_KEYS = {"$ref", "bytes", "sha256"}
PICKLE_KEYS = {"$pickle", "hmac"}

ResultLookup = Callable[[str, str | None], Any]
"""Returns the result of a completed run as JSON values. Its second argument is the run that gets it as an argument."""


def reference_serializer(found: list[str]) -> Callable[[Any], Any]:
    """What the serializer does with a handle of a run: it writes a reference, and its id is noted."""

    def fallback(value: Any) -> Any:
        run_id = getattr(value, "__agentq_run__", None)
        if run_id is None:
            raise PydanticSerializationError(f"JSON has nothing for the type {type(value).__name__}")
        found.append(run_id)
        return {RESULT_REFERENCE_KEY: run_id}

    return fallback


def refuse_lookup(run_id: str, given_to: str | None) -> Any:  # noqa: ARG001 - as a lookup is called
    """The lookup of a caller that reaches no server."""
    raise Invalid(f"The result of {run_id} cannot be looked up here.")


def resolve_references(text: str, given_to: str | None, look_up: ResultLookup) -> str:
    """The text with the results of runs in the places that stand for them, as far as a run may be given those."""
    if REFERENCE_MARK not in text:
        return text
    return to_json(_replace_runs(json.loads(text), lambda run_id: look_up(run_id, given_to))).decode()


def check_arguments(value: Any) -> None:
    """Refuse arguments that would be taken for references."""
    _replace_runs(value, _refuse_run)
    _check_reserved_object(value)


def check_result(value: Any) -> None:
    """Refuse a result that would be taken for a reference."""
    _check_reserved_object(value)


def _check_reserved_object(value: Any) -> None:
    if isinstance(value, dict) and set(value) in (STORED_KEYS, PICKLE_KEYS):
        names = ", ".join(map(repr, value))
        raise PydanticSerializationError(f"an object of just the keys {names} is agentq's own")


def _refuse_run(run_id: str) -> Any:
    raise PydanticSerializationError(
        f"a dict with the one key {RESULT_REFERENCE_KEY!r} stands for a run, here {run_id!r}"
    )


def _replace_runs(value: Any, results: Callable[[str], Any]) -> Any:
    if isinstance(value, list):
        return [_replace_runs(each, results) for each in value]
    if isinstance(value, dict):
        if len(value) == 1 and _is_run_id(value.get(RESULT_REFERENCE_KEY)):
            return results(value[RESULT_REFERENCE_KEY])
        return {name: _replace_runs(each, results) for name, each in value.items()}
    return value


def _is_run_id(text: Any) -> bool:
    if not isinstance(text, str):
        return False
    try:
        check_run_id(text)
    except Invalid:
        return False
    return True
