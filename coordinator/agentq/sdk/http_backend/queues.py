"""Queues and limits, through a coordinator.

Names and numbers are checked here as they are on Redis, so that the same input is refused in the same words.
"""

from __future__ import annotations

from collections.abc import Iterable
from time import sleep

from agentq.coordinator.bounds import DUE_AT_MS_MAX, ERROR_CHARACTERS
from agentq.coordinator.clock import monotonic_ms
from agentq.coordinator.errors import NotFound
from agentq.coordinator.model.lifecycle import LIVE_STATES, QUEUED_STATES, State
from agentq.coordinator.public_json.queues import read_limit, read_queue
from agentq.coordinator.queues.limits import LimitFullPolicy, LimitRate, LimitRecord, check_limit, check_limit_name
from agentq.coordinator.queues.queues import (
    LOOK_AGAIN_MS,
    check_fair_weight,
    check_move,
    check_queue_name,
    check_queue_or_all,
)
from agentq.coordinator.queues.stats import QueueStats
from agentq.sdk.http_backend.http_client import HttpClient


class HttpQueues:
    """What waits where, and what an operator may do about it."""

    def __init__(self, wire: HttpClient) -> None:
        self._wire = wire

    def all(self) -> list[QueueStats]:
        found, cursor = list[QueueStats](), None
        while True:
            page = self._wire.get("/queues", {"cursor": cursor})
            found += map(read_queue, page["queues"])
            cursor = page["next"]
            if cursor is None:
                return found

    def get(self, name: str) -> QueueStats | None:
        try:
            return read_queue(self._wire.get(f"/queues/{check_queue_name(name)}"))
        except NotFound:
            return None

    def pause(self, queue: str, why: str = "") -> None:
        self._wire.post(f"/queues/{check_queue_or_all(queue)}/pause", {"why": why[:ERROR_CHARACTERS]})

    def resume(self, queue: str) -> None:
        self._wire.post(f"/queues/{check_queue_or_all(queue)}/resume")

    def drain(self, queue: str, why: str = "") -> None:
        self._wire.post(f"/queues/{check_queue_name(queue)}/drain", {"why": why[:ERROR_CHARACTERS]})

    def purge(self, queue: str, states: Iterable[State] = QUEUED_STATES) -> int:
        told = self._wire.post(f"/queues/{check_queue_name(queue)}/purge", {"states": list(states)})
        return int(told["cancelled"])

    def move(self, queue: str, target: str) -> int:
        check_move(queue, target)
        return int(self._wire.post(f"/queues/{queue}/move", {"to": target})["moved"])

    def weigh(self, queue: str, fair_key: str, weight: float) -> None:
        check_fair_weight(fair_key, weight)
        self._wire.post(f"/queues/{check_queue_name(queue)}/weigh", {"fair_key": fair_key, "weight": weight})

    def wait_until_empty(self, queue: str, timeout_ms: int | None = None) -> int:
        """Wait until all runs of a queue have ended; returns how many have not when the time is over."""
        deadline_ms = None if timeout_ms is None else monotonic_ms() + timeout_ms
        while left := self._live(queue):
            rest_ms = LOOK_AGAIN_MS if deadline_ms is None else min(LOOK_AGAIN_MS, deadline_ms - monotonic_ms())
            if rest_ms <= 0:
                return left
            sleep(rest_ms / 1000)
        return 0

    def _live(self, queue: str) -> int:
        found = self.get(queue)
        return sum(found.counts.get(state, 0) for state in LIVE_STATES) if found is not None else 0


class HttpLimits:
    """How much may run at once, or in a time, under a key."""

    def __init__(self, wire: HttpClient) -> None:
        self._wire = wire

    def set(
        self,
        key: str,
        *,
        most: int | None = None,
        rate: LimitRate | None = None,
        when_full: LimitFullPolicy = LimitFullPolicy.QUEUE,
    ) -> None:
        check_limit(most, rate, when_full)
        bucket = None if rate is None else rate.model_dump()
        self._wire.put(_path(key), {"max": most, "rate": bucket, "when_full": when_full})

    def remove(self, key: str) -> None:
        self._wire.delete(_path(key))

    def shut(self, key: str, until_ms: int, why: str = "") -> None:
        body = {"until_ms": min(until_ms, DUE_AT_MS_MAX), "why": why[:ERROR_CHARACTERS]}
        self._wire.post(f"{_path(key)}/shut", body)

    def open(self, key: str) -> None:
        self._wire.post(f"{_path(key)}/open")

    def get(self, key: str) -> LimitRecord:
        return read_limit(self._wire.get(_path(key)))

    def all(self) -> list[LimitRecord]:
        return list(map(read_limit, self._wire.get("/limits")["limits"]))

    def holders(self, key: str) -> list[str]:
        """Some of the runs that have room under a key."""
        found: list[str] = self._wire.get(_path(key))["holders"]
        return found


def _path(key: str) -> str:
    return f"/limits/{check_limit_name(key)}"
