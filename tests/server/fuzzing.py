"""Extends the API document for the fuzzer: names of existing records, and no long waits."""

from __future__ import annotations

import os
import re
from typing import Any

import schemathesis

THERE = dict(pair.split("=", 1) for pair in os.environ["AGENTQ_FUZZ"].split(","))


@schemathesis.hook
def map_path_parameters(context: Any, path_parameters: dict[str, Any] | None) -> dict[str, Any] | None:
    """Half of the requests use existing ids, which reach more code than unknown ones."""
    del context
    given = path_parameters or {}
    return {name: THERE.get(name, value) if len(str(value)) % 2 else value for name, value in given.items()}


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: dict[str, Any]) -> None:
    """Nobody waits for what will not happen: a `wait` or `follow` that the server would take is left out.

    It is looked at right before the call, since not every phase asks the hooks for queries, and those that do not send
    numbers as text."""
    del context, kwargs
    if case.query:
        case.query = {name: value for name, value in case.query.items() if not holds(name, str(value).lower())}


def holds(name: str, value: str) -> bool:
    if name == "wait":
        return re.fullmatch(r"[-+.e\d]+", value) is not None
    return name == "follow" and value in {"true", "t", "1", "yes", "y", "on"}
