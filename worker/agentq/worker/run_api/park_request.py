"""How a program asks to be parked: one JSON object as its result, and exit code 0.

    {"park": {"signal": "deploy", "approval": true, "children": "all", "until": "2h", "state": {"step": 3}}}

All fields are optional, but at least one must be able to wake the run. An invalid request fails the attempt with one
sentence.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, JsonValue, ValidationError

from agentq.coordinator.errors import Invalid
from agentq.coordinator.model.durations import parse_duration_ms, parse_time_ms
from agentq.coordinator.model.field_types import describe_error
from agentq.coordinator.runs.wait import ChildrenMode, RunWait

PARK_FIELD = "park"


def _to_tuple(names: object) -> object:
    return (names,) if isinstance(names, str) else tuple(names) if isinstance(names, list) else names


class ParkRequest(BaseModel):
    """The object that the program wrote."""

    model_config = ConfigDict(extra="forbid", strict=True)

    signal: Annotated[tuple[str, ...], BeforeValidator(_to_tuple)] = ()
    approval: bool = False
    children: ChildrenMode | None = None
    until: str | None = None
    """A duration from now, or a time."""
    state: JsonValue = None


def parse_park_request(request: JsonValue) -> RunWait:
    """What the program wants to wait for; raises `Invalid` with one sentence."""
    try:
        parsed = ParkRequest.model_validate(request)
        until = {} if parsed.until is None else _parse_until(parsed.until)
        wait = RunWait(
            signals=parsed.signal, approval=parsed.approval, children=parsed.children, state=parsed.state, **until
        )
    except ValidationError as error:
        raise Invalid(f"The program cannot be parked: {describe_error(error)}") from error
    if not (wait.signals or wait.approval or wait.children or until):
        raise Invalid("The program cannot be parked: give it a signal, approval, children or until to wait for.")
    return wait


def _parse_until(text: str) -> dict[str, int]:
    """A duration counts from when the server receives it; a time in the past wakes the run at once."""
    with suppress(Invalid):
        return {"for_ms": parse_duration_ms(text)}
    with suppress(ValueError, OverflowError, OSError):
        return {"until_ms": max(0, round(datetime.fromisoformat(text).astimezone(UTC).timestamp() * 1000))}
    with suppress(Invalid):
        return {"until_ms": parse_time_ms(text)}
    raise Invalid(
        f"The program cannot be parked: until: {text[:40]!r} is neither a duration, such as 2h, nor a time, such as "
        "14:30 or 2030-01-31T14:30."
    )
