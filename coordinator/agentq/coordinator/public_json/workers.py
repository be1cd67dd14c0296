"""Workers, in public JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentq.coordinator.clock import wall_ms
from agentq.coordinator.model.durations import format_iso
from agentq.coordinator.public_json import format_time

if TYPE_CHECKING:
    from agentq.coordinator.runs.queries import RunQueries, WorkerRecord


def worker_json(records: list[WorkerRecord]) -> dict[str, Any]:
    """A worker, as all partitions that it serves know it."""
    described = records[0].identity
    return {
        "id": records[0].id,
        "state": worker_state(records),
        "slots": described.slots,
        "queues": list(described.queues),
        "labels": described.labels,
        "only_matching": described.only_matching,
        "about": described.about,
        "seen_at": format_iso(min(record.seen_at_ms for record in records)),
        "lease_until": None if records[0].ended_at_ms else format_iso(min(record.lease_until_ms for record in records)),
        "runs": [run for record in records for run in sorted(record.runs)],
        "registered_at": format_time(min((record.registered_at_ms or 0 for record in records), default=0) or None),
        "runs_ended": sum(record.runs_ended for record in records),
        "ended_at": format_time(records[0].ended_at_ms),
        "ended_why": records[0].ended_why or None,
    }


def worker_state(records: list[WorkerRecord]) -> str:
    """One that is silent in any partition is silent; one that is registered in none has left, or was lost."""
    if records[0].ended_at_ms is not None:
        return "lost" if any(record.state == "lost" for record in records) else "left"
    if any(record.silent_ms(wall_ms()) for record in records):
        return "silent"
    return "draining" if any(record.state == "draining" for record in records) else records[0].state


def describe_silence(records: list[WorkerRecord], now_ms: int, grace_ms: int) -> str:
    """How long a worker has not been heard in the worst partition, and when it is declared lost; empty if it is."""
    silent = max(records, key=lambda record: record.silent_ms(now_ms))
    return silent.silence(now_ms, grace_ms)


def group_workers(workers: list[WorkerRecord]) -> dict[str, list[WorkerRecord]]:
    """Workers by id; one that serves several partitions has a record in each."""
    found: dict[str, list[WorkerRecord]] = {}
    for record in workers:
        found.setdefault(record.id, []).append(record)
    return dict(sorted(found.items()))


def list_recent_workers(records: RunQueries) -> dict[str, list[WorkerRecord]]:
    """Workers by id, also those that left or were lost within the last hour, and are registered no more."""
    registered = group_workers(records.workers())
    return dict(sorted((group_workers(records.workers(departed=True)) | registered).items()))
