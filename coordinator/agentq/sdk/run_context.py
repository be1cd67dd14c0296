"""What a function can know and say of the run that it is: `current_run()`, which is there while a worker calls it.

A function that waits leaves: `Parked` ends the call, the run gives its place back, and when what it waits for is there
the function is called again from its beginning. What it has heard until then is kept with the run, so a wait that is
over is passed at once the next time; a child that it has submitted is found again, not submitted twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, overload

from pydantic import JsonValue
from pydantic_core import PydanticSerializationError, to_json

from agentq.coordinator import bounds
from agentq.coordinator.errors import Invalid
from agentq.coordinator.runs.wait import APPROVAL_SIGNAL, ChildrenMode, EndedChild, Resumption, RunWait
from agentq.sdk.errors import Cancelled, NotInARun
from agentq.sdk.options import Duration, to_duration_ms

if TYPE_CHECKING:
    from agentq.sdk.async_handles import AsyncRun
    from agentq.sdk.client import Client
    from agentq.sdk.functions.task import Task
    from agentq.sdk.run_handle import Run

P = ParamSpec("P")
R = TypeVar("R")
D = TypeVar("D")

_REPLAY_KEY = "$heard"
"""In what a parked run saves: the signals that it has heard, by name, beside the state that is its own."""


class Parked(BaseException):
    """Leaves a function that waits; whoever executes it parks the run. Not an Exception: `except Exception` lets it
    pass."""

    def __init__(self, wait: RunWait, reason: str = "") -> None:
        super().__init__(f"parked: {wait.describe()}")
        self.wait = wait
        self.reason = reason


class RunHost(Protocol):
    """The process that a function is called in."""

    def report(self, run_id: str, progress: dict[str, Any]) -> None:
        """Pass on how far the run is."""

    def log(self, run_id: str, text: str) -> None:
        """Write to the log of the run."""

    def is_cancelled(self, run_id: str) -> bool:
        """Whether it is to stop."""

    def received(self, run_id: str) -> Resumption | None:
        """What it resumes with; None where it has never parked."""


@dataclass(frozen=True, slots=True)
class Approval:
    """The comment of the person who answered."""

    approved: bool
    comment: str
    by: str


@dataclass(slots=True)
class _ReplayState:
    """What a run has heard, over all the times that it has parked."""

    heard: dict[str, list[Any]] = field(default_factory=dict)
    """By name, the records of the signals that came, in the order in which they were waited for."""
    state: JsonValue = None
    woken_by: str = ""
    children: list[EndedChild] = field(default_factory=list)

    @classmethod
    def of(cls, resumption: Resumption | None) -> _ReplayState:
        if resumption is None:
            return cls()
        saved = resumption.state
        heard: dict[str, Any] = {}
        if isinstance(saved, dict) and _REPLAY_KEY in saved:
            heard, saved = dict(saved[_REPLAY_KEY]), saved.get("state")  # type: ignore[arg-type]
        for message in resumption.messages:
            heard.setdefault(message.name, []).append({"data": message.data, "by": message.by})
        return cls(heard, saved, resumption.reason, list(resumption.children))

    def saved(self) -> JsonValue:
        return {_REPLAY_KEY: dict(self.heard), "state": self.state} if self.heard else self.state


class RunContext:
    """The run that this code is."""

    __slots__ = ("_client", "_host", "_recalled", "_submitted", "_taken", "attempt", "id")

    def __init__(self, run_id: str, attempt: int, host: RunHost, *, client: Client | None = None) -> None:
        self.id = run_id
        self.attempt = attempt
        self._host = host
        self._client = client
        # Most calls ask for none of this, and there is one of these for each call.
        self._recalled: _ReplayState | None = None
        self._taken: dict[str, int] | None = None
        self._submitted: Counter[str] | None = None

    # ---- what it says

    def progress(self, done: float | None = None, total: float | None = None, **more: JsonValue) -> None:
        """Report progress: `progress(3, 10)`, or any other fields for people to see."""
        parts = {"done": done, "total": total, **more}
        record = {name: value for name, value in parts.items() if value is not None}
        try:
            size = len(to_json(record))
        except PydanticSerializationError as error:
            raise Invalid(f"Progress is JSON: {error}.") from error
        if size > bounds.PROGRESS_BYTES:
            raise Invalid(f"Progress has {size} bytes; {bounds.PROGRESS_BYTES} is the most.")
        self._host.report(self.id, record)

    def log(self, *words: object) -> None:
        """Write a line to its log."""
        self._host.log(self.id, " ".join(map(str, words)) + "\n")

    # ---- what it is told

    @property
    def cancelled(self) -> bool:
        """Whether a stop was ordered."""
        return self._host.is_cancelled(self.id)

    def stop_if_cancelled(self) -> None:
        """Raise `Cancelled` if a stop was ordered."""
        if self.cancelled:
            raise Cancelled(f"the run {self.id} is to stop")

    @property
    def state(self) -> JsonValue:
        """What it saved with `park(state=...)` the last time; None at first."""
        return self._memory.state

    @property
    def woken_by(self) -> str:
        """Why it goes on after a park: `signal`, `approval`, `children`, `time` or `wake`; empty at first."""
        return self._memory.woken_by

    @property
    def ended_children(self) -> list[EndedChild]:
        """The children that have ended, as it is told of them after it has waited for them."""
        return list(self._memory.children)

    # ---- how it waits

    def park(
        self,
        *,
        signals: tuple[str, ...] | list[str] = (),
        approval: bool = False,
        children: ChildrenMode | None = None,
        wait: Duration | None = None,
        until: datetime | None = None,
        state: JsonValue = None,
        reason: str = "",
    ) -> None:
        """Leave, and be called again when the first of these has come; with none of them, when a client wakes it."""
        memory = self._memory
        memory.state = state
        times = {} if wait is None else {"for_ms": to_duration_ms(wait)}
        if until is not None:
            times["until_ms"] = max(0, round(until.timestamp() * 1000))
        kinds = {"signals": tuple(signals), "approval": approval, "children": children}
        raise Parked(RunWait.checked(**kinds, **times, state=memory.saved()), reason)

    @overload
    def wait_for_signal(self, name: str) -> JsonValue: ...
    @overload
    def wait_for_signal(self, name: str, timeout: Duration, default: D) -> JsonValue | D: ...
    def wait_for_signal(self, name: str, timeout: Duration | None = None, default: Any = None) -> Any:
        """The data of a signal that was sent to it; where none came in time, the default."""
        record = self._hear(name, timeout)
        return default if record is None else record["data"]

    def wait_for_approval(self, reason: str = "") -> Approval:
        """Wait for the answer of `agentq approve` or `agentq deny`."""
        record = self._hear(APPROVAL_SIGNAL, None, reason)
        assert record is not None
        told = record["data"]
        return Approval(told["verdict"] == "approved", told.get("comment", ""), record.get("by", ""))

    def wait_for_children(self) -> list[EndedChild]:
        """All of its children, once they have ended."""
        if self._memory.woken_by != "children":
            self.park(children="all", state=self._memory.state)
        return self.ended_children

    def _hear(self, name: str, timeout: Duration | None, reason: str = "") -> dict[str, Any] | None:
        """The next record under a name, which is passed again in the same order when the function is called again."""
        memory = self._memory
        if self._taken is None:
            self._taken = {}
        place = self._taken.get(name, 0)
        records = memory.heard.setdefault(name, [])
        if place == len(records) and timeout is not None and memory.woken_by == "time":
            memory.woken_by = ""
            records.append(None)
        if place < len(records):
            self._taken[name] = place + 1
            heard: dict[str, Any] | None = records[place]
            return heard
        if not records:
            del memory.heard[name]
        self.park(
            signals=() if name == APPROVAL_SIGNAL else (name,),
            approval=name == APPROVAL_SIGNAL,
            wait=timeout,
            state=memory.state,
            reason=reason,
        )
        raise AssertionError("park leaves")

    # ---- its children

    @overload
    def submit(self, func: Task[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Run[R]: ...
    @overload
    def submit(self, func: Callable[P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs) -> Run[R]: ...
    @overload
    def submit(self, func: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Run[R]: ...
    @overload
    def submit(self, func: str, /, *args: Any, **kwargs: Any) -> Run[Any]: ...
    def submit(self, func: Any, /, *args: Any, **kwargs: Any) -> Run[Any]:
        """Submit a child. When the function is called again, the child of then is found, not another one made."""
        if self._submitted is None:
            self._submitted = Counter()
        return self.client.submit_child(self.id, self._submitted, func, args, kwargs)

    @overload
    async def submit_async(self, func: Task[P, R], /, *args: P.args, **kwargs: P.kwargs) -> AsyncRun[R]: ...
    @overload
    async def submit_async(
        self, func: Callable[P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> AsyncRun[R]: ...
    @overload
    async def submit_async(self, func: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> AsyncRun[R]: ...
    @overload
    async def submit_async(self, func: str, /, *args: Any, **kwargs: Any) -> AsyncRun[Any]: ...
    async def submit_async(self, func: Any, /, *args: Any, **kwargs: Any) -> AsyncRun[Any]:
        """The same, in an event loop."""
        from agentq.sdk.async_handles import AsyncRun

        client = self.client.aio
        return AsyncRun(client, await client.call(self.submit, func, *args, **kwargs))

    @property
    def client(self) -> Client:
        """The client of the worker that executes the run, else the default client."""
        from agentq.sdk.client import default_client

        return self._client or default_client()

    @property
    def _memory(self) -> _ReplayState:
        if self._recalled is None:
            self._recalled = _ReplayState.of(self._host.received(self.id))
        return self._recalled

    def __repr__(self) -> str:
        return f"<run {self.id}, attempt {self.attempt}>"


def look_up_result(run_id: str, given_to: str | None) -> Any:
    """The result of a completed run as JSON values, looked up by the client of the current run, or the default one."""
    from agentq.sdk.client import default_client

    current = current_run(None)
    return (default_client() if current is None else current.client).result_value(run_id, given_to=given_to)


_NO_DEFAULT: Any = object()
_current: ContextVar[RunContext] = ContextVar("agentq_run")
set_current_run = _current.set
"""For a worker that executes one function after another without returning in between."""


@overload
def current_run() -> RunContext: ...
@overload
def current_run(default: D) -> RunContext | D: ...
def current_run(default: Any = _NO_DEFAULT) -> Any:
    """The run that this code is; outside of one, the default, or an error."""
    found = _current.get(None)
    if found is not None:
        return found
    if default is not _NO_DEFAULT:
        return default
    raise NotInARun()


@contextmanager
def use_run_context(context: RunContext) -> Iterator[RunContext]:
    """Make a run the current one; called by workers that execute functions."""
    token = _current.set(context)
    try:
        yield context
    finally:
        _current.reset(token)
