"""Places in JSON that stand for something else: `{"$run": id}` for the result of a run.

An object with one key that begins with `$` is never a user's own: such a value is refused where it would be made.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from pydantic_core import PydanticSerializationError, to_json

from agentq.coordinator.identity import check_run_id

MARK = '"$'
RUN = "$run"
REF = "$ref"
PICKLE = "$pickle"

Results = Callable[[str], Any]
"""Gives the result of a completed run, as JSON values."""


def noting(found: list[str]) -> Callable[[Any], Any]:
    """What the serializer does with a handle of a run: it writes a reference, and its id is noted."""

    def fallback(value: Any) -> Any:
        run_id = getattr(value, "__agentq_run__", None)
        if run_id is None:
            raise PydanticSerializationError(f"JSON has nothing for a {type(value).__name__}")
        found.append(run_id)
        return {RUN: run_id}

    return fallback


def resolved(text: str, results: Results | None = None) -> str:
    """The text with the results of runs in the places that stand for them."""
    if MARK not in text:
        return text
    results = results or _results
    return to_json(_walk(json.loads(text), results)).decode()


def check_no_marks(value: Any) -> None:
    """Refuse values that would be taken for references."""
    _walk(value, _refused)


def _refused(run_id: str) -> Any:
    raise PydanticSerializationError(f"a dict with the one key {RUN!r} stands for a run, here {run_id!r}")


def _walk(value: Any, results: Results) -> Any:
    if isinstance(value, list):
        return [_walk(each, results) for each in value]
    if isinstance(value, dict):
        if len(value) == 1 and RUN in value:
            if results is not _refused:
                check_run_id(str(value[RUN]))
            return results(str(value[RUN]))
        if len(value) >= 1 and (REF in value or PICKLE in value):
            raise PydanticSerializationError(f"the keys {REF!r} and {PICKLE!r} are agentq's own")
        return {name: _walk(each, results) for name, each in value.items()}
    return value


def _results(run_id: str) -> Any:
    from agentq.sdk.client import default_client
    from agentq.sdk.context import current_run

    current = current_run(None)
    client = default_client() if current is None else current.client
    return client.result_value(run_id)
