"""What a client needs of a server, however it reaches it: Redis itself (`redis_backend.py`) or the coordinator over
HTTP (`remote/`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from pydantic import JsonValue

from agentq.coordinator.errors import AgentqError
from agentq.coordinator.model.lifecycle import State
from agentq.coordinator.model.spec import RunSpec
from agentq.coordinator.runs.end_waiter import WakeFlag
from agentq.coordinator.runs.run_record import RunRecord
from agentq.coordinator.runs.verbs import SubmitReceipt

if TYPE_CHECKING:
    from agentq.coordinator.events.stream import Event
    from agentq.coordinator.model.agent_options import AgentBudgets
    from agentq.coordinator.runs.logs import RunLogEntry
    from agentq.coordinator.runs.queries import RunFilter, RunListPage
    from agentq.coordinator.sessions.verbs import SessionRecord
    from agentq.sdk.administration import Administration
    from agentq.sdk.wait.event_streams import PositionedEvent
    from agentq.sdk.wait.run_ends import RunWaiters
    from agentq.sdk.wait.stream import Stream


class CallSubmitter(Protocol):
    """Submits calls of one function, given the texts of their arguments."""

    def submit(self, arguments: str, *, durable: bool = False) -> SubmitReceipt: ...

    def submit_many(self, arguments: Sequence[str]) -> list[SubmitReceipt]: ...


class RunWatcher(Protocol):
    """Looks at runs, and is rung when one may have ended."""

    def get(self, run_id: str) -> RunRecord:
        """A run, whole."""

    def looked_at(self, run_ids: Sequence[str], *, likely: bool) -> dict[str, RunRecord | AgentqError | None]:
        """Those of these runs that have ended, or what keeps us from knowing it of one; None for one that has not.

        `likely` says that they probably have.
        """

    def enter(self, run_id: str, bell: WakeFlag) -> None:
        """Have a bell rung from now on whenever it is time to look at a run."""

    def leave(self, run_id: str, bell: WakeFlag) -> None:
        """Do not ring it any more."""

    def close(self) -> None: ...


class SessionVerbs(Protocol):
    """What may be said of sessions."""

    def new(
        self,
        name: str | None,
        agent: str,
        *,
        cwd: str | None = None,
        model: str | None = None,
        budgets: AgentBudgets | None = None,
        fork: str | None = None,
    ) -> SessionRecord: ...

    def get(self, name: str) -> SessionRecord: ...

    def turns(self, name: str, *, limit: int = 100, cursor: str | None = None) -> RunListPage: ...

    def close(self, name: str, *, cancel: bool = False) -> SessionRecord: ...


class Backend(Protocol):
    """One server, reached by one process."""

    @property
    def endings(self) -> RunWaiters:
        """Who waits for which run."""

    @property
    def sessions(self) -> SessionVerbs: ...

    @property
    def administration(self) -> Administration:
        """What is set and looked up beside runs."""

    def submitter(self, template: RunSpec) -> CallSubmitter:
        """What submits calls of one function, of which the template has all but the arguments."""

    def submit(self, spec: RunSpec, *, run_id: str | None = None, durable: bool = False) -> SubmitReceipt: ...

    def submit_many(self, specs: Iterable[RunSpec]) -> list[SubmitReceipt]: ...

    def find(self, text: str | None, *, live: bool = False) -> str:
        """The id of the run that was typed, or of the newest; see `coordinator/references.py`."""

    def get(self, run_id: str, *, given_to: str | None = None) -> RunRecord:
        """A run, whole. One that another has among its arguments is refused where that may not read it."""

    def matching(self, which: RunFilter) -> Iterator[str]:
        """The ids of the runs that a filter takes, newest first."""

    def cancel(self, run_id: str, reason: str) -> State: ...

    def signal(self, run_id: str, name: str, data: JsonValue, *, by: str) -> State: ...

    def approve(self, run_id: str, comment: str, *, by: str) -> State: ...

    def deny(self, run_id: str, comment: str, *, by: str) -> State: ...

    def wake(self, run_id: str) -> State: ...

    def requeue(self, run_id: str) -> State: ...

    def logs(self, run_id: str, after: str, *, follow: bool) -> Stream[RunLogEntry]: ...

    def events(self, after: str | None, *, follow: bool) -> Stream[PositionedEvent]: ...

    def events_of(self, run_id: str, after: str | None, *, follow: bool) -> Stream[Event]: ...

    def close(self) -> None: ...
