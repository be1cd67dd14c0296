"""Redis itself, as what a client works with."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from pydantic import JsonValue

from agentq.coordinator.config.settings import Settings
from agentq.coordinator.errors import AgentqError, Damaged, NotFound
from agentq.coordinator.model.lifecycle import State
from agentq.coordinator.model.spec import RunSpec
from agentq.coordinator.runs.verbs import RunVerbs, SubmitReceipt

if TYPE_CHECKING:
    from agentq.coordinator.events.recent import RecentEvents
    from agentq.coordinator.events.stream import Event
    from agentq.coordinator.explain.submission import SubmissionCheck
    from agentq.coordinator.plans.verbs import Plans
    from agentq.coordinator.queues.limits import Limits
    from agentq.coordinator.queues.queues import Queues
    from agentq.coordinator.runs.function_submitter import FunctionSubmitter
    from agentq.coordinator.runs.logs import Logs, RunLogEntry
    from agentq.coordinator.runs.queries import RunFilter, RunListPage, RunQueries
    from agentq.coordinator.runs.run_record import RunRecord
    from agentq.coordinator.runs.wait import SignalMessage
    from agentq.coordinator.schedules.verbs import Schedules
    from agentq.coordinator.security.token_revocation import RevocableTokens
    from agentq.coordinator.sessions.verbs import Sessions
    from agentq.coordinator.webhooks.verbs import Webhooks
    from agentq.coordinator.workers.registry import Workers
    from agentq.sdk.backend.runs import Explanation
    from agentq.sdk.wait.event_streams import PositionedEvent
    from agentq.sdk.wait.run_ends import RunWaiters
    from agentq.sdk.wait.stream import Stream


class RedisBackend:
    """One namespace, reached by one process."""

    def __init__(self, queue: RunVerbs, settings: Settings) -> None:
        self.queue = queue
        self.settings = settings
        self._endings: RunWaiters | None = None
        self._lock = threading.Lock()

    @cached_property
    def records(self) -> RunQueries:
        from agentq.coordinator.runs.queries import RunQueries

        return RunQueries(self.queue.store)

    @property
    def endings(self) -> RunWaiters:
        from agentq.sdk.wait.redis_run_watcher import RedisRunWatcher
        from agentq.sdk.wait.run_ends import RunWaiters

        with self._lock:
            if self._endings is None:
                self._endings = RunWaiters(RedisRunWatcher(self.queue))
            return self._endings

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
        from agentq.coordinator.runs.function_submitter import FunctionSubmitter

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
        from agentq.coordinator.runs.wait import list_signals

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
        from agentq.coordinator.runs.logs import Logs
        from agentq.sdk.wait.stream import Stream

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
        if self._endings is not None:
            self._endings.close()
        self.queue.store.connection.close()


def _iterate_entries(entries: Iterator[RunLogEntry]) -> Generator[RunLogEntry]:
    yield from entries


def _close_after(logs: Logs, entries: Iterator[RunLogEntry]) -> Generator[RunLogEntry]:
    try:
        yield from entries
    finally:
        logs.close()
