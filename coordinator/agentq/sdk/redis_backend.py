"""Redis itself, as what a client works with."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from pydantic import JsonValue

from agentq.coordinator.config.settings import Settings
from agentq.coordinator.errors import AgentqError, Damaged, NotFound, TryLater, Unreachable
from agentq.coordinator.model.ids import partition_of
from agentq.coordinator.model.lifecycle import TERMINAL_STATES, State
from agentq.coordinator.model.spec import RunSpec
from agentq.coordinator.runs.end_waiter import RunEndWaiter
from agentq.coordinator.runs.function_submitter import FunctionSubmitter
from agentq.coordinator.runs.logs import Logs, RunLogEntry
from agentq.coordinator.runs.queries import RunFilter, RunListPage, RunQueries
from agentq.coordinator.runs.run_record import RunRecord
from agentq.coordinator.runs.verbs import RunVerbs, SubmitReceipt
from agentq.coordinator.runs.wait import SignalMessage, list_signals
from agentq.sdk.wait.run_ends import RunWaiters
from agentq.sdk.wait.stream import Stream

if TYPE_CHECKING:
    from agentq.coordinator.events.recent import RecentEvents
    from agentq.coordinator.events.stream import Event
    from agentq.coordinator.explain.submission import SubmissionCheck
    from agentq.coordinator.plans.verbs import Plans
    from agentq.coordinator.queues.limits import Limits
    from agentq.coordinator.queues.queues import Queues
    from agentq.coordinator.schedules.verbs import Schedules
    from agentq.coordinator.security.token_revocation import RevocableTokens
    from agentq.coordinator.sessions.verbs import Sessions
    from agentq.coordinator.webhooks.verbs import Webhooks
    from agentq.coordinator.workers.registry import Workers
    from agentq.sdk.backend.runs import Explanation
    from agentq.sdk.wait.event_streams import PositionedEvent


class RedisBackend:
    """One namespace, reached by one process."""

    def __init__(self, queue: RunVerbs, settings: Settings) -> None:
        self.queue = queue
        self.settings = settings
        self.records = RunQueries(queue.store)
        self.endings = RunWaiters(_RedisRunWatcher(queue))

    @cached_property
    def sessions(self) -> Sessions:
        from agentq.coordinator.sessions.verbs import Sessions

        return Sessions(self.queue.store)

    @cached_property
    def plans(self) -> Plans:
        from agentq.coordinator.plans.verbs import Plans

        return Plans(self.queue)

    @cached_property
    def queues(self) -> Queues:
        from agentq.coordinator.queues.queues import Queues

        return Queues(self.queue.store)

    @cached_property
    def limits(self) -> Limits:
        from agentq.coordinator.queues.limits import Limits

        return Limits(self.queue.store)

    @cached_property
    def schedules(self) -> Schedules:
        from agentq.coordinator.schedules.verbs import Schedules

        return Schedules(self.queue.store)

    @cached_property
    def tokens(self) -> RevocableTokens:
        from agentq.coordinator.security.token_revocation import RevocableTokens

        return RevocableTokens(self.queue.store)

    @cached_property
    def webhooks(self) -> Webhooks:
        from agentq.coordinator.webhooks.verbs import Webhooks

        return Webhooks(self.queue.store)

    @cached_property
    def workers(self) -> Workers:
        from agentq.coordinator.workers.registry import Workers

        return Workers(self.queue.store, self.settings.reap_grace_ms)

    def submitter(self, template: RunSpec) -> FunctionSubmitter:
        return FunctionSubmitter(self.queue, template)

    def submit(self, spec: RunSpec, *, run_id: str | None = None, durable: bool = False) -> SubmitReceipt:
        return self.queue.submit(spec, run_id=run_id, durable=durable)

    def submit_many(self, specs: Iterable[RunSpec]) -> list[SubmitReceipt]:
        return list(self.queue.submit_many(specs))

    def check(self, specs: Iterable[RunSpec]) -> SubmissionCheck:
        from agentq.coordinator.explain.submission import check_submission

        return check_submission(self.queue.store, list(specs))

    def find(self, text: str | None, *, live: bool = False) -> str:
        from agentq.coordinator.id_lookup import IdLookup

        references = IdLookup(self.records)
        return references.newest(live=live) if text is None else references.run(text)

    def get(self, run_id: str, *, given_to: str | None = None) -> RunRecord:
        given = self.records.given(given_to, [run_id]) if given_to is not None else []
        return given[0] if given else self.records.get(run_id)

    def read(self, run_ids: Sequence[str]) -> list[RunRecord | AgentqError]:
        return list(map(self._read_one, run_ids))

    def _read_one(self, run_id: str) -> RunRecord | AgentqError:
        try:
            return self.records.get(run_id)
        except (NotFound, Damaged) as fault:
            return fault

    def page(self, which: RunFilter, *, limit: int = 100, cursor: str | None = None) -> RunListPage:
        return self.records.page(which, limit=limit, cursor=cursor)

    def explain(self, run_id: str) -> Explanation:
        from agentq.coordinator.explain.run import RunExplanation
        from agentq.sdk.backend.runs import Explanation

        run, because = RunExplanation(self.queue.store, self.settings).of(run_id)
        return Explanation(run.state, because)

    def signals(self, run_id: str) -> list[SignalMessage]:
        return list_signals(self.queue.store, run_id)

    def rq_titles(self, runs: Sequence[RunRecord]) -> dict[str, str]:
        from agentq.coordinator.runs.rq_titles import read_rq_titles

        return read_rq_titles(self.queue.store, runs)

    def wait(self, run_id: str, timeout_ms: int | None = None) -> RunRecord:
        return self.endings.wait_or_fail(run_id, timeout_ms)

    def cancel(self, run_id: str, reason: str) -> State:
        return self.queue.cancel(run_id, reason)

    def signal(self, run_id: str, name: str, data: JsonValue, *, by: str) -> State:
        return self.queue.signal(run_id, name, data, by=by)

    def approve(self, run_id: str, comment: str, *, by: str) -> State:
        return self.queue.approve(run_id, comment, by=by)

    def deny(self, run_id: str, comment: str, *, by: str) -> State:
        return self.queue.deny(run_id, comment, by=by)

    def wake(self, run_id: str) -> State:
        return self.queue.wake(run_id)

    def requeue(self, run_id: str) -> State:
        return self.queue.requeue(run_id)

    def forget(self, ended: Sequence[tuple[str, State]]) -> list[AgentqError | None]:
        return self.queue.forget(ended)

    def logs(self, run_id: str, after: str, *, follow: bool) -> Stream[RunLogEntry]:
        logs = Logs(self.queue.store)
        if not follow:
            return Stream(_iterate_entries(logs.read(run_id, after)))
        return Stream(_close_after(logs, logs.follow(run_id, after)), logs.close)

    def recent_events(self, limit: int, *, since_ms: int = 0, run_id: str | None = None) -> RecentEvents:
        from agentq.coordinator.events.recent import read_recent_events

        return read_recent_events(self.queue.store, limit, since_ms=since_ms, run_id=run_id)

    def events(self, after: str | None, *, follow: bool) -> Stream[PositionedEvent]:
        from agentq.sdk.wait.event_streams import stream_events

        return stream_events(self.queue.store, after, follow)

    def events_of(self, run_id: str, after: str | None, *, follow: bool) -> Stream[Event]:
        from agentq.sdk.wait.event_streams import stream_run_events

        return stream_run_events(self.queue.store, run_id, after, follow)

    def close(self) -> None:
        self.endings.close()
        self.queue.store.connection.close()


class _RedisRunWatcher(RunEndWaiter):
    """Runs, for those who wait for them."""

    def __init__(self, queue: RunVerbs) -> None:
        super().__init__(queue.store)

    def get(self, run_id: str) -> RunRecord:
        return self.records.get(run_id)

    def looked_at(self, run_ids: Sequence[str], *, likely: bool) -> dict[str, RunRecord | AgentqError | None]:
        return {run_id: self._looked_at(run_id, likely=likely) for run_id in run_ids}

    def _looked_at(self, run_id: str, *, likely: bool) -> RunRecord | AgentqError | None:
        try:
            # The first look, at a run that has mostly not ended, costs a third of a whole record.
            if not likely and not self._may_have_ended(run_id):
                return None
            run = self.records.get(run_id)
        except (Unreachable, TryLater):
            raise
        except AgentqError as fault:
            return fault
        return run if run.state in TERMINAL_STATES else None

    def _may_have_ended(self, run_id: str) -> bool:
        state = self.store.connection.command("HGET", self.store.key(partition_of(run_id), "run", run_id), "state")
        return state is None or state in TERMINAL_STATES


def _iterate_entries(entries: Iterator[RunLogEntry]) -> Generator[RunLogEntry]:
    yield from entries


def _close_after(logs: Logs, entries: Iterator[RunLogEntry]) -> Generator[RunLogEntry]:
    try:
        yield from entries
    finally:
        logs.close()
