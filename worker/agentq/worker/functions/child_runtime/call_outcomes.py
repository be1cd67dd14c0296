"""Encodes how a call ended: a class, and the outcome as JSON."""

from __future__ import annotations

import json
import traceback
from pathlib import Path
from types import TracebackType

from agentq.coordinator.bounds import ERROR_CHARACTERS, TAIL_CHARACTERS
from agentq.coordinator.errors import AgentqError, Invalid, NotAllowed
from agentq.coordinator.model.lifecycle import OutcomeClass
from agentq.sdk.errors import Cancelled, Fail, ImportFailed, Retry, SoftTimeout
from agentq.sdk.run_context import Parked
from agentq.worker.functions import protocol

_OWN_FILES = {str(Path(__file__).with_name(name)) for name in ("call_runner.py", "main.py")}

CallOutcome = tuple[str, str]
"""The kind of a record, and its text."""


def encode_not_begun(error: BaseException) -> CallOutcome:
    """The function could not be called."""
    if isinstance(error, ImportFailed):
        return encode_failure(OutcomeClass.SPAWN, str(error), _format_traceback_tail(error.__cause__ or error))
    if isinstance(error, Invalid | NotAllowed):
        return encode_failure(OutcomeClass.REJECTED, str(error))
    if isinstance(error, MemoryError):
        return encode_failure(OutcomeClass.OOM, "ran out of memory")
    # Results of other runs among its arguments may be unreachable at the moment.
    kind = OutcomeClass.INTERNAL if isinstance(error, AgentqError) else OutcomeClass.REJECTED
    return encode_failure(kind, _format_exception(error), _format_traceback_tail(error))


def encode_exception(error: BaseException, timeout_ms: int | None) -> CallOutcome:
    """The function raised an exception."""
    if isinstance(error, Parked):
        return protocol.PARK, json.dumps([error.wait.model_dump_json(exclude_defaults=True), error.reason])
    if isinstance(error, SoftTimeout):
        return encode_failure(OutcomeClass.TIMEOUT, f"ran longer than {timeout_ms} ms", _format_traceback_tail(error))
    if isinstance(error, Cancelled):
        return encode_failure(OutcomeClass.CANCELLED, str(error), _format_traceback_tail(error))
    if isinstance(error, MemoryError):
        return encode_failure(OutcomeClass.OOM, "ran out of memory", _format_traceback_tail(error))
    if isinstance(error, Fail):
        kind = OutcomeClass.CHECK if error.class_ is OutcomeClass.OK else error.class_
        return encode_failure(kind, str(error) or "Fail", _format_traceback_tail(error))
    what, text = encode_failure(OutcomeClass.EXIT, _format_exception(error), _format_traceback_tail(error))
    if isinstance(error, Retry) and error.delay_ms is not None:
        return protocol.DELAYED, f"{what} {error.delay_ms} {text}"
    return what, text


def encode_invalid_result(error: BaseException) -> CallOutcome:
    """The return value cannot be a result."""
    if isinstance(error, MemoryError):
        return encode_failure(OutcomeClass.OOM, "ran out of memory", _format_traceback_tail(error))
    return encode_failure(
        OutcomeClass.CHECK, str(error) if isinstance(error, AgentqError) else _format_exception(error)
    )


def encode_failure(kind: OutcomeClass, error: str, tail: str = "") -> CallOutcome:
    """An outcome of any class but `ok`."""
    outcome = {"class": kind.value, "error": _cut_text(error[:ERROR_CHARACTERS])}
    if tail:
        outcome["tail"] = _cut_text(tail[-TAIL_CHARACTERS:])
    return kind.value, json.dumps(outcome, ensure_ascii=False)


def _format_exception(error: BaseException) -> str:
    """The exception as Python would show it; its `__str__` may fail."""
    try:
        text = str(error)
    except Exception as fault:  # noqa: BLE001 - `__str__` is foreign code
        text = f"(its text is not available: {type(fault).__name__})"
    name = type(error).__qualname__
    return f"{name}: {text}" if text else name


def _format_traceback_tail(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(type(error), error, _skip_own_frames(error.__traceback__)))
    except Exception as fault:  # noqa: BLE001 - see above
        return f"(the traceback is not available: {type(fault).__name__})\n"


def _skip_own_frames(found: TracebackType | None) -> TracebackType | None:
    """The traceback without agentq's frames at its beginning."""
    while found is not None and found.tb_next is not None and found.tb_frame.f_code.co_filename in _OWN_FILES:
        found = found.tb_next
    return found


def _cut_text(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
