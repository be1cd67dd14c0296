"""What the fuzzer is told beside the document of the API: names of things that are there; and to be quick."""

from __future__ import annotations

import os
from typing import Any

import schemathesis

THERE = dict(pair.split("=", 1) for pair in os.environ["AGENTQ_FUZZ"].split(","))


@schemathesis.hook
def map_path_parameters(context: Any, path_parameters: dict[str, Any] | None) -> dict[str, Any] | None:
    """A request for something that is there gets further than one for something that is not; half of them do."""
    del context
    given = path_parameters or {}
    return {name: THERE.get(name, value) if len(str(value)) % 2 else value for name, value in given.items()}


@schemathesis.hook
def map_query(context: Any, query: dict[str, Any] | None) -> dict[str, Any] | None:
    """Nobody waits for what will not happen."""
    del context
    return {
        name: value for name, value in (query or {}).items() if name != "wait" or not isinstance(value, int | float)
    }
