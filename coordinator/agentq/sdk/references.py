"""Places in JSON that stand for something else.

    {"$run": id}                            among arguments: the result of that run
    {"$ref": …, "bytes": …, "sha256": …}    a whole result: it lies in a store
    {"$pickle": …, "hmac": …}               all arguments, or a whole result: a signed pickle

Only exactly these are read so, and only in these places. A value of somebody's own that looks like one is refused where
it would be written; a JSON schema with its `$ref` is not.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

from pydantic_core import PydanticSerializationError, to_json

from agentq.coordinator.errors import Invalid
from agentq.coordinator.fields import RUN
from agentq.coordinator.identity import check_run_id

MARK = '"$'
"""Without it there is no reference in a text."""
STORED = {"$ref", "bytes", "sha256"}
SEALED = {"$pickle", "hmac"}

Results = Callable[[str], Any]
"""Gives the result of a completed run, as JSON values."""


def noting(found: list[str]) -> Callable[[Any], Any]:
    """What the serializer does with a handle of a run: it writes a reference, and its id is noted."""

    def fallback(value: Any) -> Any:
        run_id = getattr(value, "__agentq_run__", None)
        if run_id is None:
            raise PydanticSerializationError(f"JSON has nothing for the type {type(value).__name__}")
        found.append(run_id)
        return {RUN: run_id}

    return fallback


def resolved(text: str, given_to: str | None = None) -> str:
    """The text with the results of runs in the places that stand for them, as far as a run may be given those."""
    if MARK not in text:
        return text
    return to_json(_walk(json.loads(text), partial(_result, given_to))).decode()


def check_arguments(value: Any) -> None:
    """Refuse arguments that would be taken for references."""
    _walk(value, _refused)
    _check_whole(value)


def check_result(value: Any) -> None:
    """Refuse a result that would be taken for a reference."""
    _check_whole(value)


def _check_whole(value: Any) -> None:
    if isinstance(value, dict) and set(value) in (STORED, SEALED):
        names = ", ".join(map(repr, value))
        raise PydanticSerializationError(f"an object of just the keys {names} is agentq's own")


def _refused(run_id: str) -> Any:
    raise PydanticSerializationError(f"a dict with the one key {RUN!r} stands for a run, here {run_id!r}")


def _walk(value: Any, results: Results) -> Any:
    if isinstance(value, list):
        return [_walk(each, results) for each in value]
    if isinstance(value, dict):
        if len(value) == 1 and _is_run(value.get(RUN)):
            return results(value[RUN])
        return {name: _walk(each, results) for name, each in value.items()}
    return value


def _is_run(text: Any) -> bool:
    if not isinstance(text, str):
        return False
    try:
        check_run_id(text)
    except Invalid:
        return False
    return True


def _result(given_to: str | None, run_id: str) -> Any:
    from agentq.sdk.client import default_client
    from agentq.sdk.context import current_run

    current = current_run(None)
    client = default_client() if current is None else current.client
    return client.result_value(run_id, given_to=given_to)
