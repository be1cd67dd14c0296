"""Workers, in public JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentq.coordinator.model.durations import format_iso, parse_iso_ms
from agentq.coordinator.public_json import format_time, read_time

if TYPE_CHECKING:
    from agentq.coordinator.workers.registry import WorkerOverview


def worker_json(worker: WorkerOverview) -> dict[str, Any]:
    """A worker, as all partitions that it serves know it."""
    return {
        "id": worker.id,
        "state": worker.state,
        "slots": worker.slots,
        "queues": list(worker.queues),
        "labels": worker.labels,
        "only_matching": worker.only_matching,
        "about": worker.about,
        "seen_at": format_iso(worker.seen_at_ms),
        "lease_until": format_time(worker.lease_until_ms),
        "runs": worker.runs,
        "registered_at": format_time(worker.registered_at_ms),
        "runs_ended": worker.runs_ended,
        "ended_at": format_time(worker.ended_at_ms),
        "ended_why": worker.ended_why or None,
        "silent_ms": worker.silent_ms,
        "lost_in_ms": worker.lost_in_ms,
    }


def read_worker(told: dict[str, Any]) -> WorkerOverview:
    """The worker that JSON tells of."""
    from agentq.coordinator.workers.registry import WorkerOverview

    plain = ("id", "state", "slots", "queues", "labels", "only_matching", "about", "runs", "runs_ended")
    return WorkerOverview(
        **{name: told[name] for name in (*plain, "silent_ms", "lost_in_ms")},
        seen_at_ms=parse_iso_ms(told["seen_at"]),
        lease_until_ms=read_time(told["lease_until"]),
        registered_at_ms=read_time(told["registered_at"]),
        ended_at_ms=read_time(told["ended_at"]),
        ended_why=told["ended_why"] or "",
    )
