"""The workers of a namespace as a person sees them: each once, however many partitions it serves."""

from __future__ import annotations

from contextlib import suppress
from typing import Literal

from pydantic import BaseModel, ConfigDict, JsonValue

from agentq.coordinator.errors import NotFound
from agentq.coordinator.runs.queries import RunQueries, WorkerRecord, describe_silence
from agentq.coordinator.storage.store import NamespaceStore
from agentq.coordinator.workers.lease import order_drain

WorkerState = Literal["ready", "draining", "silent", "left", "lost"]


class WorkerOverview(BaseModel):
    """A worker, as all partitions that it serves know it."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    id: str
    state: WorkerState
    slots: int
    queues: tuple[str, ...]
    labels: dict[str, str]
    only_matching: bool
    about: dict[str, JsonValue]
    seen_at_ms: int
    lease_until_ms: int | None
    """None once it has left or was lost."""
    runs: list[str]
    registered_at_ms: int | None
    runs_ended: int
    """The attempts whose end it has reported."""
    ended_at_ms: int | None
    """When it left or was declared lost."""
    ended_why: str
    silent_ms: int | None
    """The time since its last heartbeat, if heartbeats are missing."""
    lost_in_ms: int | None
    """The time until it is declared lost, if it is silent."""

    @property
    def silence(self) -> str:
        """The time since its last heartbeat and until it is declared lost, as the end of a sentence; empty if alive."""
        return describe_silence(self.silent_ms, self.lost_in_ms or 0) if self.silent_ms else ""


class Workers:
    """The workers of one namespace: list, show and drain."""

    def __init__(self, store: NamespaceStore, reap_grace_ms: int) -> None:
        self.store = store
        self.records = RunQueries(store)
        self._grace_ms = reap_grace_ms

    def all(self, *, departed: bool = False) -> list[WorkerOverview]:
        """Those that are registered, by id; `departed` those as well that left or were lost within the last hour."""
        found = _group_by_id(self.records.workers(departed=True)) if departed else {}
        found |= _group_by_id(self.records.workers())
        now_ms = self.store.time_ms()
        return [_merge_records(records, now_ms, self._grace_ms) for _, records in sorted(found.items())]

    def drain(self, worker: str, why: str = "", *, hurry: bool = False) -> None:
        """Order a worker to claim nothing more, to finish or hand back what it holds, and to end; in a hurry, now."""
        partitions = [record.partition for record in self.records.workers() if record.id == worker]
        if not partitions:
            raise NotFound(f"There is no worker {worker[:80]!r}; `agentq worker ls --all` shows those that there are.")
        order_drain(self.store, partitions[0], worker, why, hurry=hurry)
        for partition in partitions[1:]:
            with suppress(NotFound):  # it has left meanwhile
                order_drain(self.store, partition, worker, why, hurry=hurry)


def _group_by_id(records: list[WorkerRecord]) -> dict[str, list[WorkerRecord]]:
    found: dict[str, list[WorkerRecord]] = {}
    for record in records:
        found.setdefault(record.id, []).append(record)
    return found


def _merge_records(records: list[WorkerRecord], now_ms: int, grace_ms: int) -> WorkerOverview:
    first, described = records[0], records[0].identity
    worst = max(records, key=lambda record: record.silent_ms(now_ms))
    silent_ms = worst.silent_ms(now_ms) or None
    return WorkerOverview(
        id=first.id,
        state=_merge_states(records, silent_ms),
        slots=described.slots,
        queues=described.queues,
        labels=described.labels,
        only_matching=described.only_matching,
        about=described.about,
        seen_at_ms=min(record.seen_at_ms for record in records),
        lease_until_ms=None if first.ended_at_ms else min(record.lease_until_ms for record in records),
        runs=[run for record in records for run in sorted(record.runs)],
        registered_at_ms=min((record.registered_at_ms or 0 for record in records), default=0) or None,
        runs_ended=sum(record.runs_ended for record in records),
        ended_at_ms=first.ended_at_ms,
        ended_why=first.ended_why,
        silent_ms=silent_ms,
        lost_in_ms=max(0, worst.lost_at_ms(grace_ms) - now_ms) if silent_ms else None,
    )


def _merge_states(records: list[WorkerRecord], silent_ms: int | None) -> WorkerState:
    """Silent in any partition is silent; registered in no partition is left, or lost."""
    states = {record.state for record in records}
    if records[0].ended_at_ms is not None:
        return "lost" if "lost" in states else "left"
    if silent_ms:
        return "silent"
    return "draining" if "draining" in states else "ready"
