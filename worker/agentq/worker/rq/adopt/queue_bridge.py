"""What `agentq worker --rq high,default` does besides executing runs. Its tasks:

1. Take jobs from RQ's lists into lanes (`inbox`).
2. Register with RQ's tools, and obey their commands (`registration`).
3. Enqueue what RQ has scheduled.
4. Tell RQ of outcomes that it does not know, and clean its registries regularly (`job_outcomes`).

Jobs are function runs, executed like all others.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

from redis import Redis
from redis.exceptions import RedisError
from rq.scheduler import RQScheduler

from agentq.coordinator.clock import monotonic_ms
from agentq.coordinator.config.settings import Settings
from agentq.coordinator.errors import AgentqError, NotFound, WrongState
from agentq.coordinator.runs.verbs import RunVerbs
from agentq.coordinator.storage.store import NamespaceStore
from agentq.worker.rq.adopt.inbox import RqInbox
from agentq.worker.rq.adopt.job_outcomes import TIDY_INTERVAL_MS, submit_settlements, submit_tidy
from agentq.worker.rq.adopt.registration import HEARTBEAT_S, RqRegistration
from agentq.worker.rq.queue_names import is_rq_queue
from agentq.worker.rq.redis_client import check_address, create_client
from agentq.worker.rq.rq_lanes import RqLanes
from agentq.worker.slots import WorkerSlots
from agentq.worker.worker_thread import WorkerThread

TICK_MS = 1_000
FAST_TICK_MS = 100
STOP_MS = 30_000
LOCK_RENEWAL_MS = 20_000
"""How often the locks of RQ's scheduler are requested and renewed; they last a minute."""
JOBS_PER_SLOT = 8
"""How many jobs may wait in a lane or be held for each slot; the others stay where RQ's tools see them."""


class QueueBridge:
    """Connects a worker to RQ's queues."""

    def __init__(
        self,
        store: NamespaceStore,
        settings: Settings,
        worker: str,
        slots: WorkerSlots,
        queues: Sequence[str],
        serializer: str,
        failed: Callable[[AgentqError], None],
    ) -> None:
        check_address(settings.url)
        self.store = store
        self._slots = slots
        self.lanes = [RqLanes(self.store, name, serializer) for name in queues]
        client = create_client(settings.url)
        self.inboxes = [
            RqInbox(lanes, lambda: JOBS_PER_SLOT * slots.slots - self._jobs_in_hand(), failed) for lanes in self.lanes
        ]
        self.registration = RqRegistration(client, worker, queues, self._jobs_in_hand, self._stop_job, failed)
        self.job_scheduler = RqJobScheduler(client, queues)
        self._tick_ms = settings.tick_ms
        self._hurry_until_ms = 0
        self._started = False
        self._closed = threading.Event()
        self._woken = threading.Event()
        self._thread = WorkerThread(self._run, "agentq-rq", failed)

    def start(self) -> None:
        self.registration.start()
        self._started = True
        for inbox in self.inboxes:
            inbox.start()
        self._thread.start()

    def on_take(self) -> None:
        """The worker has claimed runs: there is room for more."""
        self.registration.may_have_changed()
        for inbox in self.inboxes:
            inbox.wake()

    def is_empty(self) -> bool:
        return not any(lanes.left() for lanes in self.lanes)

    def drain(self) -> None:
        """Take in nothing more."""
        if self._started:
            for inbox in self.inboxes:
                inbox.close()

    def close(self) -> None:
        """Deregister, once no job is held."""
        if not self._started:
            return
        self.drain()
        self._closed.set()
        self._woken.set()
        if self._thread.ident is not None:
            self._thread.join()
        with suppress(RedisError):
            # What cannot be told expires by itself.
            self.job_scheduler.close()
            self.registration.close()

    def _jobs_in_hand(self) -> int:
        return sum(is_rq_queue(claim.lane) for claim in self._slots.held())

    def _run(self) -> None:
        beat_at = close_at = tidy_at = 0
        while not self._closed.is_set():
            now_ms = monotonic_ms()
            try:
                self.job_scheduler.look()
                self.registration.update_state()
                if now_ms >= beat_at:
                    beat_at = now_ms + HEARTBEAT_S * 1000
                    self.registration.beat()
                if now_ms >= close_at or now_ms < self._hurry_until_ms:
                    close_at = now_ms + self._tick_ms
                    for lanes in self.lanes:
                        submit_settlements(lanes)
                if now_ms >= tidy_at:
                    tidy_at = now_ms + TIDY_INTERVAL_MS
                    for lanes in self.lanes:
                        submit_tidy(lanes)
            except (AgentqError, RedisError):
                # The server cannot be reached, as the worker knows too: the next round comes by itself.
                self._closed.wait(TICK_MS / 1000)
            self._woken.wait((FAST_TICK_MS if monotonic_ms() < self._hurry_until_ms else TICK_MS) / 1000)
            self._woken.clear()

    def _stop_job(self, job: str) -> None:
        for lanes in self.lanes:
            run = lanes.run_of(job)
            if run is None or run not in lanes.jobs():
                continue
            with suppress(NotFound, WrongState):  # it has just ended
                RunVerbs(self.store).cancel(run, "stopped by a command of RQ", stop_ms=STOP_MS)
            self._hurry_until_ms = monotonic_ms() + STOP_MS
            self._woken.set()
            return


class RqJobScheduler:
    """RQ's scheduler of some queues: moves due jobs into RQ's list, under RQ's own lock. Call `look` every second.

    So `enqueue_in`, `enqueue_at` and retries with an interval need no scheduler of their own. Where one runs already,
    it holds the lock of its queues, and this one leaves them alone.
    """

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
