"""Where a value does not fit a JSON schema. One that may take long is held against it in another process.

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

FAULTS = 20
"""Of so many it is told at the most."""
MESSAGE_CHARACTERS = 500
CPU_S = 1
"""Processor time for one check, beside what the process itself takes to start; a full second more at the most."""
WALL_S = 30
AT_A_TIME = 2
WAIT_S = 5

_room = BoundedSemaphore(AT_A_TIME)


class TooBusy(Exception):
    """No process could check it in time, which says nothing about the value."""


class Fault(NamedTuple):
    """A place where it does not fit."""

    path: list[str | int]
    message: str
    schema_path: str


class Unfit(Exception):
    """The schema cannot be used; the message says why."""


def faults(value: Any, schema: Mapping[str, Any]) -> list[Fault]:
    """Where it does not fit, in the order of the places."""
    return _faults_apart(value, schema) if _may_take_long(schema) else _faults_here(value, schema)


def _may_take_long(schema: Any) -> bool:
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


def _faults_here(value: Any, schema: Mapping[str, Any]) -> list[Fault]:
    from jsonschema import Draft7Validator  # type: ignore[import-untyped]
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    # With a registry of its own, nothing that a schema refers to is ever fetched from anywhere.
    validator = Draft7Validator(schema, registry=Registry())
    try:
        found = sorted(validator.iter_errors(value), key=lambda fault: list(map(str, fault.path)))
    except Unresolvable as error:
        raise Unfit(f"refers to what it does not have: {error}") from error
    except RecursionError:
        raise Unfit("refers to itself without end") from None
    return [
        Fault(list(each.path), each.message[:MESSAGE_CHARACTERS], "/".join(map(str, each.schema_path)))
        for each in found[:FAULTS]
    ]


def _faults_apart(value: Any, schema: Mapping[str, Any]) -> list[Fault]:
    if not _room.acquire(timeout=WAIT_S):
        raise TooBusy
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-m", "agentq.coordinator.schema_faults"],
            input=json.dumps([value, schema]).encode(),
            capture_output=True,
            timeout=WALL_S,
            check=False,
            env={},
        )
    except subprocess.TimeoutExpired as late:
        raise TooBusy from late
    finally:
        _room.release()
    if done.returncode < 0:
        raise Unfit("has a pattern that takes too long for this value")
    if done.returncode:
        raise RuntimeError(done.stderr.decode(errors="replace"))
    told = json.loads(done.stdout)
    if isinstance(told, str):
        raise Unfit(told)
    return [Fault(*each) for each in told]


def _answer() -> None:
    """Be the other process: a value and a schema come in, and places go out, or why the schema cannot be used."""
    import math
    import re
    import resource

    import jsonschema  # noqa: F401 - loaded before the time counts

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    spent = resource.getrusage(resource.RUSAGE_SELF)
    limit_s = math.ceil(spent.ru_utime + spent.ru_stime) + CPU_S
    resource.setrlimit(resource.RLIMIT_CPU, (limit_s, limit_s + 1))
    value, schema = json.load(sys.stdin.buffer)
    told: list[Fault] | str
    try:
        told = _faults_here(value, schema)
    except Unfit as unfit:
        told = str(unfit)
    except re.error as error:
        told = f"has a pattern that is no regular expression: {error}"
    json.dump(told, sys.stdout)


if __name__ == "__main__":
    _answer()
