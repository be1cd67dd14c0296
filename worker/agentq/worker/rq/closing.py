"""Telling RQ how jobs ended whose runs ended without RQ: lost too often, cancelled, or killed by the system.

RQ's part of an end (status, registries, callbacks, retries) runs the code of the job's owner, so it is not done here
but by a run of its own, which may be lost and tried again like any. That there is one at most is seen to by its key.
"""

from __future__ import annotations

from pydantic import JsonValue

from agentq.coordinator.limits import PRIORITY_MAX
from agentq.coordinator.queue import Queue
from agentq.coordinator.run import RunSpec
from agentq.worker.rq.lanes import RqLanes, Unclosed
from agentq.worker.rq.names import upkeep_name

SETTLE = "agentq.worker.rq.job:settle"
TIDY = "agentq.worker.rq.job:tidy"
TIDY_MS = 600_000
"""How often RQ's registries are cleaned, whoever does it."""


def close_all(lanes: RqLanes) -> int:
    """Submit what tells RQ of each end that it has not heard of; how many there are."""
    queue = Queue(lanes.store)
    found = list(lanes.unclosed())
    for end in found:
        queue.submit(_settlement(lanes, end))
    return len(found)


def tidy(lanes: RqLanes) -> None:
    """Have what has had its time removed from RQ's registries, once in a while, as RQ's own workers do."""
    Queue(lanes.store).submit(
        RunSpec(
            kind="function",
            function=TIDY,
            args=[lanes.rq_queue, lanes.serializer],
            queue=upkeep_name(lanes.rq_queue),
            priority=PRIORITY_MAX,
            dedupe_key=f"rq-tidy:{lanes.queue}",
            dedupe_ttl_ms=TIDY_MS - 1,
        )
    )


def _settlement(lanes: RqLanes, end: Unclosed) -> RunSpec:
    words: list[JsonValue] = [end.job, lanes.rq_queue, lanes.serializer, end.run, end.state, end.attempt, end.error]
    return RunSpec(
        kind="function",
        function=SETTLE,
        args=words,
        queue=upkeep_name(lanes.rq_queue),
        priority=PRIORITY_MAX,
        dedupe_key=f"rq-settle:{end.run}",
    )
