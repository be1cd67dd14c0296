"""Durable waiting: what a parked run may wait for, what wakes it, and what it resumes with.

A run parks with a `Wait`. A signal, an approval, a child that ends: each is kept with the run until an attempt that was
handed it parks again, or the run ends; so an attempt that dies with it in its hands costs nothing but time.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    StringConstraints,
    TypeAdapter,
    ValidationError,
    model_validator,
)
from pydantic_core import to_json

from agentq.coordinator import bounds
from agentq.coordinator.errors import Fenced, Invalid, quote_input, refusal_error
from agentq.coordinator.model.durations import format_iso
from agentq.coordinator.model.field_types import Milliseconds, Name, Text, describe_error, limit_bytes
from agentq.coordinator.model.ids import partition_of

if TYPE_CHECKING:
    from agentq.coordinator.storage.store import NamespaceStore

APPROVAL_SIGNAL = "approval"
"""The name of the signal by which an approval is sent; its data are a verdict and a comment."""

ChildrenMode = Literal["all", "any"]
ApprovalVerdict = Literal["approved", "denied"]


def _check_signal_names(names: tuple[str, ...]) -> tuple[str, ...]:
    if APPROVAL_SIGNAL in names:
        raise ValueError(f"an approval is waited for as such, not as the signal {APPROVAL_SIGNAL!r}")
    return names


class RunWait(BaseModel):
    """What a run waits for. The first of them wakes it; if all are empty, only `wake` does."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)

    signals: Annotated[tuple[Name, ...], Field(strict=False, max_length=bounds.SIGNALS_PER_WAIT, fail_fast=True)] = ()
    approval: bool = False
    children: ChildrenMode | None = None
    until_ms: Annotated[int, Field(ge=0)] | None = None
    """A time, by the server's clock; or"""
    for_ms: Milliseconds | None = None
    """the time from now on."""
    state: Annotated[JsonValue, limit_bytes(bounds.PARKED_STATE_BYTES, "the state")] = None
    """Data that the run gets back when it continues."""

    @model_validator(mode="after")
    def _is_clear(self) -> Self:
        _check_signal_names(self.signals)
        if self.until_ms is not None and self.for_ms is not None:
            raise ValueError("give either until_ms or for_ms, not both")
        return self

    @classmethod
    def checked(cls, **fields: Any) -> RunWait:
        """Make a wait; raises `Invalid` with one sentence."""
        try:
            return cls(**fields)
        except ValidationError as error:
            raise Invalid(describe_error(error)) from error

    def script_arguments(self, reason: str) -> tuple[str | int | bytes, ...]:
        """The arguments of the park script."""
        names = (*self.signals, *((APPROVAL_SIGNAL,) if self.approval else ()))
        until = "" if self.until_ms is None else min(self.until_ms, bounds.DUE_AT_MS_MAX)
        signals = f" {' '.join(names)} " if names else ""
        saved = b"" if self.state is None else to_json(self.state)
        duration = "" if self.for_ms is None else self.for_ms
        return (
            until,
            duration,
            (reason or self.describe())[: bounds.ERROR_CHARACTERS],
            signals,
            self.children or "",
            saved,
        )

    def describe(self) -> str:
        """What wakes the run, apart from the time, as in `an approval, or all of its children to end`."""
        parts = ["an approval"] if self.approval else []
        parts += [f"the signal {name}" for name in self.signals]
        parts += [f"{self.children} of its children to end"] if self.children else []
        if not parts:
            return "a time" if (self.until_ms, self.for_ms) != (None, None) else "a client to wake it"
        return f"{', '.join(parts[:-1])}, or {parts[-1]}" if len(parts) > 1 else parts[0]

    @classmethod
    def from_hash(cls, fields: dict[str, str]) -> RunWait:
        """What the run of this hash waits for, or waited for last."""
        names = fields.get("awaited_signals", "").split()
        return cls.model_validate(
            {
                "signals": tuple(name for name in names if name != APPROVAL_SIGNAL),
                "approval": APPROVAL_SIGNAL in names,
                "children": fields.get("awaited_children") or None,
                "until_ms": int(fields["alarm_at_ms"]) if fields.get("alarm_at_ms") else None,
                "state": json.loads(fields["saved_state"]) if fields.get("saved_state") else None,
            }
        )


class SignalMessage(BaseModel):
    """A signal, as stored with its run."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    id: str
    name: str
    data: JsonValue
    at_ms: int
    by: str

    @classmethod
    def read(cls, message: str, name: str, data: str, at: str, by: str) -> SignalMessage:
        return cls(id=message, name=name, data=json.loads(data), at_ms=int(at), by=by)

    def record(self) -> dict[str, Any]:
        """The signal as shown to clients."""
        return {"id": self.id, "name": self.name, "data": self.data, "at": format_iso(self.at_ms), "by": self.by}


class EndedChild(BaseModel):
    """A child that has ended, as reported to its parent."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    id: str
    state: str
    outcome: dict[str, JsonValue] | None

    @classmethod
    def read(cls, child: str, state: str, outcome: str) -> EndedChild:
        record = json.loads(outcome) if outcome else None
        if record is not None:
            record = {name: record.get(name) for name in ("class", "exit_code", "signal", "error", "result")}
            size = len(to_json(record["result"]))
            if size > bounds.CHILD_RESULT_BYTES:
                record |= {"result": None, "result_bytes": size}
        return cls(id=child, state=state, outcome=record)


class Resumption(BaseModel):
    """What an attempt resumes with after its run has parked."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    reason: Literal["approval", "signal", "children", "time", "wake"]
    messages: list[SignalMessage]
    children: list[EndedChild]
    state: JsonValue

    def to_json(self) -> bytes:
        """The result as the program reads it."""
        record = {"reason": self.reason, "state": self.state}
        messages = [message.record() for message in self.messages]
        return to_json({**record, "messages": messages, "children": [child.model_dump() for child in self.children]})


def receive_resumption(store: NamespaceStore, run_id: str, fence: str) -> Resumption | None:
    """The wait result for the attempt with this fence; None if its run has never parked."""
    partition, after = partition_of(run_id), ""
    first: list[Any] | None = None
    children: list[EndedChild] = []
    while True:
        reply = store.call("attempt/get_wait_result", partition, run_id, fence, after)
        if reply == "unparked":
            return None
        if isinstance(reply, str):
            raise refusal_error(reply, f"run {run_id}") or Fenced()
        _, after, _, _, number, *rest = reply
        first = first or reply
        rows = rest[5 * int(number) :]
        children += [EndedChild.read(*rows[at : at + 3]) for at in range(0, len(rows), 3)]
        if not after:
            break
    _, _, why, saved, number, *rest = first
    return Resumption(
        reason=why,
        messages=[SignalMessage.read(*rest[at : at + 5]) for at in range(0, 5 * int(number), 5)],
        children=children,
        state=json.loads(saved) if saved else None,
    )


def list_signals(store: NamespaceStore, run_id: str) -> list[SignalMessage]:
    """The signals that a run has received and not taken yet."""
    key = store.key(partition_of(run_id), "pending_signals", run_id)
    entries = store.connection.command("XRANGE", key, "-", "+")
    return [SignalMessage.read(entry, flat[1], flat[3], flat[5], flat[7]) for entry, flat in entries]


_name_adapter: TypeAdapter[str] = TypeAdapter(Name)
_data_adapter: TypeAdapter[Any] = TypeAdapter(
    Annotated[JsonValue, limit_bytes(bounds.SIGNAL_BYTES, "the data of the signal")]
)
_sender_adapter: TypeAdapter[str] = TypeAdapter(Annotated[Text, StringConstraints(max_length=bounds.SENDER_CHARACTERS)])


def signal_arguments(name: str, data: JsonValue, by: str) -> tuple[str, bytes, str]:
    """The arguments of the signal script; raises `Invalid` for an invalid signal."""
    try:
        return (
            _name_adapter.validate_python(name),
            to_json(_data_adapter.validate_python(data)),
            _sender_adapter.validate_python(by),
        )
    except ValidationError as error:
        raise Invalid(f"The signal {quote_input(name)} cannot be sent: {describe_error(error)}") from error
