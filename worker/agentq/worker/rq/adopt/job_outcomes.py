"""Telling RQ how jobs ended whose runs ended without RQ: lost too often, cancelled, or killed by the system.

RQ's part of an end (status, registries, callbacks, retries) runs the code of the job's owner, so it is not done here
but by a run of its own, which may be lost and tried again like any. That there is one at most is seen to by its key.
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
"""How often RQ's registries are cleaned, whoever does it."""


def submit_settlements(lanes: RqLanes) -> int:
    """Submit what tells RQ of each end that it has not heard of; how many there are."""
    queue = RunVerbs(lanes.store)
    found = list(lanes.unclosed())
    for end in found:
        queue.submit(_build_settlement(lanes, end))
    return len(found)


def submit_tidy(lanes: RqLanes) -> None:
    """Have what has had its time removed from RQ's registries, once in a while, as RQ's own workers do."""
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
