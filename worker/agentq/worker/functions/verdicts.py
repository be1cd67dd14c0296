"""How a call ended, as its worker and the server are told: a class, and the outcome as JSON."""

from __future__ import annotations

import json
import traceback
from pathlib import Path
from types import TracebackType

from agentq.coordinator.errors import AgentqError, Invalid, NotAllowed
from agentq.coordinator.lifecycle import OutcomeClass
from agentq.coordinator.limits import ERROR_CHARACTERS, TAIL_CHARACTERS
from agentq.sdk.context import Parked
from agentq.sdk.errors import Cancelled, Fail, ImportFailed, Retry, SoftTimeout
from agentq.worker.functions import wire

_OURS = {str(Path(__file__).with_name(name)) for name in ("performing.py", "inside.py")}

Verdict = tuple[str, str]
"""What a record says, and its text."""


def not_begun(error: BaseException) -> Verdict:
    """It could not be called at all."""
    if isinstance(error, ImportFailed):
        return failed(OutcomeClass.SPAWN, str(error), _tail(error.__cause__ or error))
    if isinstance(error, Invalid | NotAllowed):
        return failed(OutcomeClass.REJECTED, str(error))
    if isinstance(error, MemoryError):
        return failed(OutcomeClass.OOM, "ran out of memory")
    # The results of other runs that it was to be called with may be out of reach at the moment.
    kind = OutcomeClass.INTERNAL if isinstance(error, AgentqError) else OutcomeClass.REJECTED
    return failed(kind, _named(error), _tail(error))


def raised(error: BaseException, timeout_ms: int | None) -> Verdict:
    """What the function has raised."""
    if isinstance(error, Parked):
        return wire.PARK, json.dumps([error.wait.model_dump_json(exclude_defaults=True), error.reason])
    if isinstance(error, SoftTimeout):
        return failed(OutcomeClass.TIMEOUT, f"ran longer than {timeout_ms} ms", _tail(error))
    if isinstance(error, Cancelled):
        return failed(OutcomeClass.CANCELLED, str(error), _tail(error))
    if isinstance(error, MemoryError):
        return failed(OutcomeClass.OOM, "ran out of memory", _tail(error))
    if isinstance(error, Fail):
        kind = OutcomeClass.CHECK if error.class_ is OutcomeClass.OK else error.class_
        return failed(kind, str(error) or "Fail", _tail(error))
    what, text = failed(OutcomeClass.EXIT, _named(error), _tail(error))
    if isinstance(error, Retry) and error.delay_ms is not None:
        return wire.DELAYED, f"{what} {error.delay_ms} {text}"
    return what, text


def unkept(error: BaseException) -> Verdict:
    """What it has returned cannot be a result."""
    if isinstance(error, MemoryError):
        return failed(OutcomeClass.OOM, "ran out of memory", _tail(error))
    return failed(OutcomeClass.CHECK, str(error) if isinstance(error, AgentqError) else _named(error))


def failed(kind: OutcomeClass, error: str, tail: str = "") -> Verdict:
    """An outcome of any class but `ok`."""
    outcome = {"class": kind.value, "error": _kept(error[:ERROR_CHARACTERS])}
    if tail:
        outcome["tail"] = _kept(tail[-TAIL_CHARACTERS:])
    return kind.value, json.dumps(outcome, ensure_ascii=False)


def _named(error: BaseException) -> str:
    """As Python would show it; what the function raises may not even have a text."""
    try:
        text = str(error)
    except Exception as fault:  # noqa: BLE001 - it is somebody else's method
        text = f"(its text cannot be had: {type(fault).__name__})"
    name = type(error).__qualname__
    return f"{name}: {text}" if text else name


def _tail(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(type(error), error, _theirs(error.__traceback__)))
    except Exception as fault:  # noqa: BLE001 - see above
        return f"(the traceback cannot be had: {type(fault).__name__})\n"


def _theirs(found: TracebackType | None) -> TracebackType | None:
    """The traceback without our own frames before it."""
    while found is not None and found.tb_next is not None and found.tb_frame.f_code.co_filename in _OURS:
        found = found.tb_next
    return found


def _kept(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
