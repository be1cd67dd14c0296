"""Validates values against JSON schemas; a validation that may take long runs in another process.

Python's `re` can take years for a short text, and lets no other thread run meanwhile: for one schema the whole server
would stand still. A process can be ended, so that one has a limit of its processor time, and there are few at a time.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from threading import BoundedSemaphore
from typing import Any, NamedTuple

ERRORS_MAX = 20
"""Of so many it is told at the most."""
MESSAGE_CHARACTERS = 500
CPU_LIMIT_S = 1
"""Processor time for one check, beside what the process itself takes to start; a full second more at the most."""
WALL_LIMIT_S = 30
PROCESSES_MAX = 2
PROCESS_WAIT_S = 5

_process_slots = BoundedSemaphore(PROCESSES_MAX)


class ValidationBusy(Exception):
    """No process could check it in time, which says nothing about the value."""


class SchemaFault(NamedTuple):
    """A place where it does not fit."""

    path: list[str | int]
    message: str
    schema_path: str


class InvalidSchema(Exception):
    """The schema cannot be used; the message says why."""


def validate_schema(value: Any, schema: Mapping[str, Any]) -> list[SchemaFault]:
    """Where it does not fit, in the order of the places."""
    return _validate_in_subprocess(value, schema) if _may_be_slow(schema) else _validate_in_process(value, schema)


def _may_be_slow(schema: Any) -> bool:
    """Whether it has regular expressions, or parts that are used again and again by their name."""
    left = [schema]
    while left:
        each = left.pop()
        if isinstance(each, dict):
            if not each.keys().isdisjoint(("pattern", "patternProperties", "$ref")):
                return True
            left.extend(each.values())
        elif isinstance(each, list):
            left.extend(each)
    return False


def _validate_in_process(value: Any, schema: Mapping[str, Any]) -> list[SchemaFault]:
    from jsonschema import Draft7Validator  # type: ignore[import-untyped]
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    # With a registry of its own, nothing that a schema refers to is ever fetched from anywhere.
    validator = Draft7Validator(schema, registry=Registry())
    try:
        found = sorted(validator.iter_errors(value), key=lambda fault: list(map(str, fault.path)))
    except Unresolvable as error:
        raise InvalidSchema(f"refers to what it does not have: {error}") from error
    except RecursionError:
        raise InvalidSchema("refers to itself without end") from None
    return [
        SchemaFault(list(each.path), each.message[:MESSAGE_CHARACTERS], "/".join(map(str, each.schema_path)))
        for each in found[:ERRORS_MAX]
    ]


def _validate_in_subprocess(value: Any, schema: Mapping[str, Any]) -> list[SchemaFault]:
    if not _process_slots.acquire(timeout=PROCESS_WAIT_S):
        raise ValidationBusy
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-m", "agentq.coordinator.schema_validation"],
            input=json.dumps([value, schema]).encode(),
            capture_output=True,
            timeout=WALL_LIMIT_S,
            check=False,
            env={},
        )
    except subprocess.TimeoutExpired as late:
        raise ValidationBusy from late
    finally:
        _process_slots.release()
    if done.returncode < 0:
        raise InvalidSchema("has a pattern that takes too long for this value")
    if done.returncode:
        raise RuntimeError(done.stderr.decode(errors="replace"))
    faults = json.loads(done.stdout)
    if isinstance(faults, str):
        raise InvalidSchema(faults)
    return [SchemaFault(*each) for each in faults]


def _run_subprocess() -> None:
    """Be the other process: a value and a schema come in, and places go out, or why the schema cannot be used."""
    import math
    import re
    import resource

    import jsonschema  # noqa: F401 - loaded before the time counts

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    spent = resource.getrusage(resource.RUSAGE_SELF)
    limit_s = math.ceil(spent.ru_utime + spent.ru_stime) + CPU_LIMIT_S
    resource.setrlimit(resource.RLIMIT_CPU, (limit_s, limit_s + 1))
    value, schema = json.load(sys.stdin.buffer)
    faults: list[SchemaFault] | str
    try:
        faults = _validate_in_process(value, schema)
    except InvalidSchema as unfit:
        faults = str(unfit)
    except re.error as error:
        faults = f"has a pattern that is no regular expression: {error}"
    json.dump(faults, sys.stdout)


if __name__ == "__main__":
    _run_subprocess()
