"""What a client or a command needs of a server, however it reaches it.

There are three: Redis itself (`redis_backend.py`), the coordinator over HTTP (`http_backend/`), and the socket of an
agent's run (`cli/agent_socket.py`), which refuses most of it. The verbs of runs are here; each other subject is a
group with a module of its own, whose methods take and return the coordinator's own records.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from pydantic import JsonValue

from agentq.coordinator.errors import AgentqError
from agentq.coordinator.model.lifecycle import State
from agentq.coordinator.model.spec import RunSpec
from agentq.coordinator.runs.run_record import RunRecord
from agentq.coordinator.runs.verbs import SubmitReceipt

if TYPE_CHECKING:
    from agentq.coordinator.events.recent import RecentEvents
    from agentq.coordinator.events.stream import Event
    from agentq.coordinator.explain.submission import SubmissionCheck
    from agentq.coordinator.runs.logs import RunLogEntry
    from agentq.coordinator.runs.queries import RunFilter, RunListPage
    from agentq.coordinator.runs.wait import SignalMessage
    from agentq.sdk.backend.plans import PlanVerbs
    from agentq.sdk.backend.queues import LimitVerbs, QueueVerbs
    from agentq.sdk.backend.runs import CallSubmitter, Explanation
    from agentq.sdk.backend.schedules import ScheduleVerbs
    from agentq.sdk.backend.sessions import SessionVerbs
    from agentq.sdk.backend.tokens import TokenVerbs
    from agentq.sdk.backend.webhooks import WebhookVerbs
    from agentq.sdk.backend.workers import WorkerVerbs
    from agentq.sdk.wait.event_streams import PositionedEvent
    from agentq.sdk.wait.run_ends import RunWaiters
    from agentq.sdk.wait.stream import Stream


class Backend(Protocol):
    """One server, reached by one process."""

    # ---- groups

    @property
    def sessions(self) -> SessionVerbs: ...

    @property
    def plans(self) -> PlanVerbs: ...

    @property
    def queues(self) -> QueueVerbs: ...

    @property
    def limits(self) -> LimitVerbs: ...

    @property
    def schedules(self) -> ScheduleVerbs: ...

    @property
    def tokens(self) -> TokenVerbs: ...

    @property
    def webhooks(self) -> WebhookVerbs: ...

    @property
    def workers(self) -> WorkerVerbs: ...

    # ---- submitting

    def submitter(self, template: RunSpec) -> CallSubmitter:
        """What submits calls of one function, of which the template has all but the arguments."""

    def submit(self, spec: RunSpec, *, run_id: str | None = None, durable: bool = False) -> SubmitReceipt: ...

    def submit_many(self, specs: Iterable[RunSpec]) -> list[SubmitReceipt]: ...

    def check(self, specs: Iterable[RunSpec]) -> SubmissionCheck:
        """What is strange about runs that are about to be submitted."""

    # ---- reading

    def find(self, text: str | None, *, live: bool = False) -> str:
        """The id of the run that was typed, or of the newest; see `coordinator/id_lookup.py`."""

    def get(self, run_id: str, *, given_to: str | None = None) -> RunRecord:
        """A run, whole. One that another has among its arguments is refused where that may not read it."""

    def read(self, run_ids: Sequence[str]) -> list[RunRecord | AgentqError]:
        """Runs, whole, in this order; of one that cannot be read, why."""

    def page(self, which: RunFilter, *, limit: int = 100, cursor: str | None = None) -> RunListPage:
        """A page of the runs that a filter takes, newest first."""

    def explain(self, run_id: str) -> Explanation:
        """Why a run is where it is."""

    def signals(self, run_id: str) -> list[SignalMessage]:
        """The signals that a run has, and has not taken yet."""

    def rq_titles(self, runs: Sequence[RunRecord]) -> dict[str, str]:
        """What RQ calls those of the runs that are jobs of RQ, by their ids."""

    # ---- waiting

    @property
    def endings(self) -> RunWaiters:
        """Who waits for which run."""

    def wait(self, run_id: str, timeout_ms: int | None = None) -> RunRecord:
        """The run, once it has ended."""

    # ---- verbs

    def cancel(self, run_id: str, reason: str) -> State: ...

    def signal(self, run_id: str, name: str, data: JsonValue, *, by: str) -> State: ...

    def approve(self, run_id: str, comment: str, *, by: str) -> State: ...

    def deny(self, run_id: str, comment: str, *, by: str) -> State: ...

    def wake(self, run_id: str) -> State: ...

    def requeue(self, run_id: str) -> State: ...

    def forget(self, ended: Sequence[tuple[str, State]]) -> list[AgentqError | None]:
        """Delete ended runs before their time, each in the state that it was seen in; tells why one was left."""

    # ---- following

    def logs(self, run_id: str, after: str, *, follow: bool) -> Stream[RunLogEntry]: ...

    def recent_events(self, limit: int, *, since_ms: int = 0, run_id: str | None = None) -> RecentEvents:
        """The newest events that have happened already, and where `events` goes on after them."""

    def events(self, after: str | None, *, follow: bool) -> Stream[PositionedEvent]: ...

    def events_of(self, run_id: str, after: str | None, *, follow: bool) -> Stream[Event]: ...

    def close(self) -> None: ...


class BackendOwner(Protocol):
    """A client, for the handles that it makes: it connects when its backend is first asked for."""

    @property
    def backend(self) -> Backend: ...

    @property
    def endings(self) -> RunWaiters: ...
