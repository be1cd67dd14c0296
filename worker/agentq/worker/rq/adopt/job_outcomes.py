"""Tells RQ the outcomes of jobs whose runs ended without RQ: lost too often, cancelled, or killed by the system.

RQ's part of an end (status, registries, callbacks, retries) runs code of the job's owner. So it is a run of its own,
which may be lost and retried like any. Its idempotency key ensures that there is at most one.
"""

from __future__ import annotations

from pydantic import JsonValue

from agentq.coordinator.bounds import PRIORITY_MAX
from agentq.coordinator.model.spec import RunSpec
from agentq.coordinator.runs.verbs import RunVerbs
from agentq.worker.rq.queue_names import to_upkeep_name
from agentq.worker.rq.rq_lanes import RqLanes, UnclosedJob

SETTLE_FUNCTION = "agentq.worker.rq.job:settle"
TIDY_FUNCTION = "agentq.worker.rq.job:tidy"
TIDY_INTERVAL_MS = 600_000
"""How often RQ's registries are cleaned, by any worker."""


def submit_settlements(lanes: RqLanes) -> int:
    """Submit a run for each outcome that RQ does not know; returns how many."""
    queue = RunVerbs(lanes.store)
    found = list(lanes.unclosed())
    for end in found:
        queue.submit(_build_settlement(lanes, end))
    return len(found)


def submit_tidy(lanes: RqLanes) -> None:
    """Submit the regular cleanup of RQ's registries, which RQ's own workers do otherwise."""
    RunVerbs(lanes.store).submit(
        RunSpec(
            kind="function",
            function=TIDY_FUNCTION,
            args=[lanes.rq_queue, lanes.serializer],
            queue=to_upkeep_name(lanes.rq_queue),
            priority=PRIORITY_MAX,
            dedupe_key=f"rq-tidy:{lanes.queue}",
            dedupe_ttl_ms=TIDY_INTERVAL_MS - 1,
        )
    )


def _build_settlement(lanes: RqLanes, end: UnclosedJob) -> RunSpec:
    words: list[JsonValue] = [end.job, lanes.rq_queue, lanes.serializer, end.run, end.state, end.attempt, end.error]
    return RunSpec(
        kind="function",
        function=SETTLE_FUNCTION,
        args=words,
        queue=to_upkeep_name(lanes.rq_queue),
        priority=PRIORITY_MAX,
        dedupe_key=f"rq-settle:{end.run}",
    )
