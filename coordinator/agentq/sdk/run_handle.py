"""The handle of a run: how it stands, what it returned, and what may be said to it."""

from __future__ import annotations

import getpass
import json
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from pydantic import JsonValue
from pydantic_core import to_json

from agentq.coordinator.errors import Invalid
from agentq.coordinator.events.stream import STREAM_START
from agentq.coordinator.model.lifecycle import State
from agentq.coordinator.runs import run_record
from agentq.coordinator.runs.logs import RunLogEntry
from agentq.sdk.errors import RunCancelled, RunFailed, RunSkipped, StillGoing
from agentq.sdk.functions import pickles, result_store
from agentq.sdk.functions.codec import Function, find_loaded_function
from agentq.sdk.options import Duration, to_timeout_ms
from agentq.sdk.wait.stream import Stream

if TYPE_CHECKING:
    from agentq.coordinator.events.stream import Event
    from agentq.coordinator.model.agent_events import AnyAgentEvent
    from agentq.sdk.backend import BackendOwner

R_co = TypeVar("R_co", covariant=True)


class Run(Generic[R_co]):
    """A run, by its id. As an argument of another submit it stands for its result."""

    __slots__ = ("_client", "_function", "id")

    def __init__(self, client: BackendOwner, run_id: str, function: Function | None) -> None:
        self._client = client
        self._function = function
        self.id = run_id

    @property
    def __agentq_run__(self) -> str:
        return self.id

    @property
    def later(self) -> R_co:
        """The run as an argument of another submit, where it stands for its result: for type checkers, its result."""
        return cast(R_co, self)

    # ---- what it is

    def record(self) -> run_record.RunRecord:
        """Everything that is known of it."""
        return self._client.backend.get(self.id)

    def state(self) -> State:
        """The state that it is in: a str, such as `"running"`."""
        return self.record().state

    def wait(self, timeout: float | Duration | None = None) -> State:
        """Wait until it has ended, however it did."""
        return self._ended(timeout).state

    def result(self, timeout: float | Duration | None = None) -> R_co:
        """What the function returned, once it has ended; RunFailed if it did not complete."""
        return self.returned(self._ended(timeout))

    def returned(self, ended: run_record.RunRecord) -> R_co:
        """What the function returned, from the record of the ended run."""
        text = result_text(ended)
        path = ended.spec.function
        if path is None:
            # A command or an agent, whose result is JSON and nothing else.
            return cast(R_co, json.loads(result_store.load_result(text)))
        function = self._function or find_loaded_function(path) or Function.unseen(path)
        value: R_co = function.returned(text)
        return value

    def _ended(self, timeout: float | Duration | None) -> run_record.RunRecord:
        ended = self._client.endings.wait(self.id, to_timeout_ms(timeout))
        if ended is None:
            raise wait_timeout_error(self.id)
        return ended

    # ---- what it writes, and what happens to it

    def logs(self, *, follow: bool = False, after: str = STREAM_START) -> Stream[RunLogEntry]:
        """What it wrote, as far as the server keeps it; with `follow`, until it has ended."""
        return self._client.backend.logs(self.id, after, follow=follow)

    def agent_events(self, *, follow: bool = False) -> Stream[AnyAgentEvent]:
        """What its agent said and did, in order; with `follow`, until it has ended."""
        from agentq.coordinator.runs.agent_event_reader import read_agent_events

        entries = self.logs(follow=follow)
        return Stream(_close_with(entries, read_agent_events(entries)), entries.interrupt)

    def events(self, *, follow: bool = True, after: str | None = None) -> Stream[Event]:
        """What has happened to it, and with `follow` what does until it has ended. `after` is the id of an event."""
        return self._client.backend.events_of(self.id, after, follow=follow)

    # ---- changing the run

    def cancel(self, reason: str = "cancelled on request") -> State:
        """End it. One that is executed stays as it is until its worker has stopped it."""
        return self._client.backend.cancel(self.id, reason)

    def signal(self, name: str, data: JsonValue = None) -> State:
        """Send it something to know."""
        return self._client.backend.signal(self.id, name, data, by=_user_name())

    def approve(self, comment: str = "") -> State:
        """Say yes to what it asks for."""
        return self._client.backend.approve(self.id, comment, by=_user_name())

    def deny(self, comment: str = "") -> State:
        """Say no to it."""
        return self._client.backend.deny(self.id, comment, by=_user_name())

    def wake(self) -> State:
        """Wake the run, regardless of its wait."""
        return self._client.backend.wake(self.id)

    def requeue(self) -> State:
        """Have it begin again, once it has ended."""
        return self._client.backend.requeue(self.id)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Run) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"<run {self.id}>"


def result_text(ended: run_record.RunRecord) -> bytes:
    """The JSON text of the result of a run that has ended; an exception if it did not complete."""
    outcome = ended.outcome
    if ended.state is State.COMPLETED:
        return to_json(outcome.result if outcome is not None else None)
    what = ended.spec.function or ended.spec.name or ended.spec.kind
    class_ = outcome.class_.value if outcome is not None else ""
    error = (outcome.error if outcome is not None else None) or ended.reason or ""
    tail = (outcome.tail if outcome is not None else None) or ""
    kind = {State.CANCELLED: RunCancelled, State.SKIPPED: RunSkipped}.get(ended.state, RunFailed)
    told = f"The run {ended.id} of {what} {_STATE_PHRASES.get(ended.state, f'is {ended.state}')}"
    message = f"{told}{f' ({class_})' if class_ and kind is RunFailed else ''}{f': {error}' if error else '.'}"
    raise kind(message, run=ended.id, class_=class_, error=error, tail=tail)


_STATE_PHRASES = {State.FAILED: "failed", State.CANCELLED: "was cancelled", State.SKIPPED: "was skipped"}


def parse_result(ended: run_record.RunRecord) -> Any:
    """The result of a run as JSON values, for one that has it as an argument."""
    try:
        text = result_store.load_result(result_text(ended))
    except RunFailed as failed:
        raise Invalid(f"It has the result of a run as an argument, which has none. {failed}") from failed
    if pickles.is_signed_pickle(text.decode()):
        raise Invalid(f"The result of {ended.id} is a pickle, which cannot be an argument of another run.")
    return json.loads(text)


def wait_timeout_error(run_id: str) -> StillGoing:
    """The error for a wait that timed out."""
    return StillGoing(f"The run {run_id} has not ended in time. It goes on; `agentq why {run_id}` says where it is.")


def _close_with(entries: Stream[RunLogEntry], agent_events: Iterator[AnyAgentEvent]) -> Generator[AnyAgentEvent]:
    try:
        yield from agent_events
    finally:
        entries.close()


def _user_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""
