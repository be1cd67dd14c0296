"""What a client needs of a server, however it reaches it: Redis itself (`direct.py`) or the coordinator over HTTP
(`remote/`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from pydantic import JsonValue

from agentq.coordinator.errors import AgentqError
from agentq.coordinator.life import Run
from agentq.coordinator.lifecycle import State
from agentq.coordinator.outcomes import Bell
from agentq.coordinator.queue import Receipt
from agentq.coordinator.run import RunSpec

if TYPE_CHECKING:
    from agentq.coordinator.events import Event
    from agentq.coordinator.logs import LogEntry
    from agentq.coordinator.records import Filter, Page
    from agentq.coordinator.sessions import Session
    from agentq.coordinator.turn import Budgets
    from agentq.sdk.administration import Administration
    from agentq.sdk.endings import Endings
    from agentq.sdk.following import Placed
    from agentq.sdk.streaming import Stream


class Submitter(Protocol):
    """Submits calls of one function, given the texts of their arguments."""

    def submit(self, arguments: str, *, durable: bool = False) -> Receipt: ...

    def submit_many(self, arguments: Sequence[str]) -> list[Receipt]: ...


class Runs(Protocol):
    """Looks at runs, and is rung when one may have ended."""

    def get(self, run_id: str) -> Run:
        """A run, whole."""

    def looked_at(self, run_ids: Sequence[str], *, likely: bool) -> dict[str, Run | AgentqError | None]:
        """Those of these runs that have ended, or what keeps us from knowing it of one; None for one that has not.

        `likely` says that they probably have.
        """

    def enter(self, run_id: str, bell: Bell) -> None:
        """Have a bell rung from now on whenever it is time to look at a run."""

    def leave(self, run_id: str, bell: Bell) -> None:
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
        budgets: Budgets | None = None,
        fork: str | None = None,
    ) -> Session: ...

    def get(self, name: str) -> Session: ...

    def turns(self, name: str, *, limit: int = 100, cursor: str | None = None) -> Page: ...

    def close(self, name: str, *, cancel: bool = False) -> Session: ...


class Backend(Protocol):
    """One server, reached by one process."""

    @property
    def endings(self) -> Endings:
        """Who waits for which run."""

    @property
    def sessions(self) -> SessionVerbs: ...

    @property
    def administration(self) -> Administration:
        """What is set and looked up beside runs."""

    def submitter(self, template: RunSpec) -> Submitter:
        """What submits calls of one function, of which the template has all but the arguments."""

    def submit(self, spec: RunSpec, *, run_id: str | None = None, durable: bool = False) -> Receipt: ...

    def submit_many(self, specs: Iterable[RunSpec]) -> list[Receipt]: ...

    def find(self, text: str | None, *, live: bool = False) -> str:
        """The id of the run that was typed, or of the newest; see `coordinator/references.py`."""

    def get(self, run_id: str, *, given_to: str | None = None) -> Run:
        """A run, whole. One that another has among its arguments is refused where that may not read it."""

    def matching(self, which: Filter) -> Iterator[str]:
        """The ids of the runs that a filter takes, newest first."""

    def cancel(self, run_id: str, reason: str) -> State: ...

    def signal(self, run_id: str, name: str, data: JsonValue, *, by: str) -> State: ...

    def approve(self, run_id: str, comment: str, *, by: str) -> State: ...

    def deny(self, run_id: str, comment: str, *, by: str) -> State: ...

    def wake(self, run_id: str) -> State: ...

    def requeue(self, run_id: str) -> State: ...

    def logs(self, run_id: str, after: str, *, follow: bool) -> Stream[LogEntry]: ...

    def events(self, after: str | None, *, follow: bool) -> Stream[Placed]: ...

    def events_of(self, run_id: str, after: str | None, *, follow: bool) -> Stream[Event]: ...

    def close(self) -> None: ...
