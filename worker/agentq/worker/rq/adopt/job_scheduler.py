"""RQ's scheduler in a worker of agentq: moves due jobs into RQ's list, under RQ's own lock.

So `enqueue_in`, `enqueue_at` and retries with an interval need no scheduler of their own; where one runs already, it
holds the lock of its queues, and this one leaves them alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from redis import Redis
from rq.scheduler import RQScheduler

from agentq.coordinator.clock import monotonic_ms

LOCK_RENEWAL_MS = 20_000
"""How often locks are requested and renewed; they last a minute."""


class RqJobScheduler:
    """The scheduler of some queues; call `look` every second."""

    def __init__(self, client: Redis, queues: Sequence[str]) -> None:
        self._scheduler = RQScheduler(list(queues), connection=client, logging_level="WARNING")
        self._ask_at_ms = 0
        self._born = False

    def look(self) -> None:
        """Enqueue what is due in queues whose lock is held."""
        now_ms = monotonic_ms()
        if now_ms >= self._ask_at_ms:
            self._ask_at_ms = now_ms + LOCK_RENEWAL_MS
            if self._scheduler.acquire_locks():
                self._scheduler.register_birth()
                self._born = True
        if self._scheduler.acquired_locks:
            self._scheduler.enqueue_scheduled_jobs()

    def close(self) -> None:
        self._scheduler.release_locks()
        if self._born:
            self._scheduler.register_death()
