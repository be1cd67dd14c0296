"""Redis itself, as what a client works with."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from pydantic import JsonValue

from agentq.coordinator.calling import Calls
from agentq.coordinator.errors import AgentqError, TryLater, Unreachable
from agentq.coordinator.identity import partition_of
from agentq.coordinator.life import Run
from agentq.coordinator.lifecycle import TERMINAL, State
from agentq.coordinator.logs import LogEntry, Logs
from agentq.coordinator.outcomes import Outcomes
from agentq.coordinator.queue import Queue, Receipt
from agentq.coordinator.records import Filter, Records
from agentq.coordinator.run import RunSpec
from agentq.sdk.endings import Endings
from agentq.sdk.streaming import Stream

if TYPE_CHECKING:
    from agentq.coordinator.events import Event
    from agentq.coordinator.sessions import Sessions
    from agentq.sdk.administration import DirectAdministration
    from agentq.sdk.following import Placed


class Direct:
    """One namespace, reached by one process."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.records = Records(queue.store)
        self.endings = Endings(_Runs(queue))

    @cached_property
    def sessions(self) -> Sessions:
        from agentq.coordinator.sessions import Sessions

        return Sessions(self.queue.store)

    @cached_property
    def administration(self) -> DirectAdministration:
        from agentq.sdk.administration import DirectAdministration

        return DirectAdministration(self.queue.store)

    def submitter(self, template: RunSpec) -> Calls:
        return Calls(self.queue, template)

    def submit(self, spec: RunSpec, *, run_id: str | None = None, durable: bool = False) -> Receipt:
        return self.queue.submit(spec, run_id=run_id, durable=durable)

    def submit_many(self, specs: Iterable[RunSpec]) -> list[Receipt]:
        return list(self.queue.submit_many(specs))

    def find(self, text: str | None, *, live: bool = False) -> str:
        from agentq.coordinator.references import References

        references = References(self.records)
        return references.newest(live=live) if text is None else references.run(text)

    def get(self, run_id: str, *, given_to: str | None = None) -> Run:
        given = self.records.given(given_to, [run_id]) if given_to is not None else []
        return given[0] if given else self.records.get(run_id)

    def matching(self, which: Filter) -> Iterator[str]:
        return (run.id for run in self.records.all(which))

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

    def logs(self, run_id: str, after: str, *, follow: bool) -> Stream[LogEntry]:
        logs = Logs(self.queue.store)
        if not follow:
            return Stream(_all(logs.read(run_id, after)))
        return Stream(_closing(logs, logs.follow(run_id, after)), logs.close)

    def events(self, after: str | None, *, follow: bool) -> Stream[Placed]:
        from agentq.sdk.following import events

        return events(self.queue.store, after, follow)

    def events_of(self, run_id: str, after: str | None, *, follow: bool) -> Stream[Event]:
        from agentq.sdk.following import events_of

        return events_of(self.queue.store, run_id, after, follow)

    def close(self) -> None:
        self.endings.close()
        self.queue.store.connection.close()


class _Runs(Outcomes):
    """Runs, for those who wait for them."""

    def __init__(self, queue: Queue) -> None:
        super().__init__(queue.store)

    def get(self, run_id: str) -> Run:
        return self.records.get(run_id)

    def looked_at(self, run_ids: Sequence[str], *, likely: bool) -> dict[str, Run | AgentqError | None]:
        return {run_id: self._looked_at(run_id, likely=likely) for run_id in run_ids}

    def _looked_at(self, run_id: str, *, likely: bool) -> Run | AgentqError | None:
        try:
            # The first look, at a run that has mostly not ended, costs a third of a whole record.
            if not likely and not self._may_have_ended(run_id):
                return None
            run = self.records.get(run_id)
        except (Unreachable, TryLater):
            raise
        except AgentqError as fault:
            return fault
        return run if run.state in TERMINAL else None

    def _may_have_ended(self, run_id: str) -> bool:
        state = self.store.connection.command("HGET", self.store.key(partition_of(run_id), "run", run_id), "state")
        return state is None or state in TERMINAL


def _all(entries: Iterator[LogEntry]) -> Generator[LogEntry]:
    yield from entries


def _closing(logs: Logs, entries: Iterator[LogEntry]) -> Generator[LogEntry]:
    try:
        yield from entries
    finally:
        logs.close()
