"""A worker identity in agentq for a worker started by RQ's own command: one slot, with a lease, inboxes and duties.

`next` returns a job as an attempt; `report_end` reports how it ended. Meanwhile a thread renews the lease. When the
lease is lost or the run was taken away, `give_up` is called, in that thread.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Sequence

from agentq.coordinator.bounds import ERROR_CHARACTERS
from agentq.coordinator.clock import monotonic_ms
from agentq.coordinator.config.settings import Settings
from agentq.coordinator.duties.janitor import Janitor
from agentq.coordinator.duties.promoter import Promoter
from agentq.coordinator.duties.reaper import Reaper
from agentq.coordinator.duties.scheduler import Scheduler
from agentq.coordinator.duties.ticker import Duty, Ticker
from agentq.coordinator.errors import AgentqError, Evicted, Refused, TryLater, Unreachable
from agentq.coordinator.model.demands import HOST_LABEL, VERSION_LABEL, WORKER_LABEL
from agentq.coordinator.model.ids import new_nonce
from agentq.coordinator.model.lifecycle import OutcomeClass
from agentq.coordinator.model.spec import Outcome, RunSpec, parse_spec
from agentq.coordinator.package_version import installed_version
from agentq.coordinator.runs.verbs import Claim, RunVerbs
from agentq.coordinator.storage.connection import NoGroup
from agentq.coordinator.storage.keys import CONSUMER_GROUP
from agentq.coordinator.storage.store import NamespaceStore
from agentq.coordinator.workers.lease import WorkerIdentity, WorkerLease, WorkerOrder
from agentq.worker.heartbeat import Heartbeat, HeartbeatListener
from agentq.worker.rq.adopt.inbox import RqInbox
from agentq.worker.rq.adopt.job_outcomes import submit_settlements
from agentq.worker.rq.queue_names import list_served_queues
from agentq.worker.rq.redis_client import RQ_PARTITION
from agentq.worker.rq.rq_lanes import RqLanes
from agentq.worker.slots import WorkerSlots

BLOCK_MS = 1_000
"""The length of one blocking read: signals are handled in between."""


class RqSlot:
    """One slot with its lease, inboxes and duties."""

    def __init__(
        self, store: NamespaceStore, settings: Settings, queues: Sequence[RqLanes], give_up: Callable[[str], None]
    ) -> None:
        host = socket.gethostname()
        self.id = f"{host}-{os.getpid()}-{new_nonce()}"
        self.store, self.settings = store, settings
        self.queue = RunVerbs(store)
        self.lanes = list(queues)
        labels = {HOST_LABEL: host, WORKER_LABEL: self.id, VERSION_LABEL: installed_version()}
        identity = WorkerIdentity(
            id=self.id,
            queues=list_served_queues(lanes.rq_queue for lanes in self.lanes),
            labels=labels,
            about={"host": host, "pid": os.getpid(), "kind": "rq worker"},
        )
        self.lease = WorkerLease(store, identity, settings)
        self.slots = WorkerSlots(1)
        self._give_up = give_up
        self._wants_job = False
        self._fault: AgentqError | None = None
        self._drained = False
        listener = HeartbeatListener(
            on_order=self._on_order,
            on_fenced=lambda _: give_up("its run has gone on without it"),
            on_registered=lambda: None,
            on_lease_lost=lambda: give_up("its worker could not reach the server in time"),
            on_failure=self._on_failure,
        )
        self.heartbeat = Heartbeat(self.lease, self.slots, listener)
        self.inboxes = [RqInbox(lanes, lambda: int(self._wants_job), self._on_failure) for lanes in self.lanes]
        tick = settings.tick_ms
        duties: list[Duty] = [Promoter(store, tick), Scheduler(store, tick), Reaper(store, settings), Janitor(store)]
        self.ticker = Ticker(store, duties, tick)
        self._reader = store.connection.another()
        self._closed = threading.Event()
        self._settlement_thread = threading.Thread(target=self._close_jobs, name="agentq-rq-closing", daemon=True)

    def open(self) -> None:
        self.lease.register()
        self.heartbeat.start()
        self.ticker.start()
        self._settlement_thread.start()
        for inbox in self.inboxes:
            inbox.start()

    def close(self) -> None:
        """Deregister; a held run is handed back."""
        self._closed.set()
        for inbox in self.inboxes:
            inbox.close()
        self.ticker.stop(wait=False)
        self.heartbeat.stop()
        self._reader.close()
        try:
            self.lease.deregister()
        except (Unreachable, TryLater):
            # If this fails, the lease expires by itself.
            return

    # ---- what it executes

    def next(self, timeout_ms: int | None) -> tuple[Claim, RunSpec] | None:
        """The next run, within the timeout; without one, None if nothing waits."""
        deadline = None if timeout_ms is None else monotonic_ms() + timeout_ms
        while True:
            if self._fault is not None:
                raise self._fault
            claims = self._claim(deadline)
            if claims:
                self.slots.take(claims[0])
                self.queue.start(claims)
                return claims[0], parse_spec(claims[0].spec, claims[0].lane)
            if self._drained or (deadline is not None and monotonic_ms() >= deadline):
                return None
            if deadline is None and not any(lanes.take_in(1).taken for lanes in self.lanes):
                return None

    def _claim(self, deadline: int | None) -> list[Claim]:
        self._set_wants_job(deadline is not None)
        try:
            claims = self.lease.claim(0, calls=1)
            return claims or ([] if deadline is None else self._block(deadline))
        except Evicted:
            self.heartbeat.beat_now()
            self._closed.wait(BLOCK_MS / 1000)
            return []
        finally:
            self._set_wants_job(False)

    def _set_wants_job(self, wants_job: bool) -> None:
        self._wants_job = wants_job
        if wants_job:
            for inbox in self.inboxes:
                inbox.wake()

    def _block(self, deadline: int) -> list[Claim]:
        """Wait until the deadline for a run."""
        streams = self.lease.streams(1, 1, [RQ_PARTITION])
        lanes = {name: lane for name, (_, lane) in streams.items() if lane is not None}
        block_ms = max(1, min(BLOCK_MS, deadline - monotonic_ms()))
        if not lanes:
            self._closed.wait(min(block_ms, 100) / 1000)
            self.lease.forget_lanes()
            return []
        command = ("XREADGROUP", "GROUP", CONSUMER_GROUP, self.id, "COUNT", 1, "BLOCK", block_ms, "STREAMS")
        try:
            reply = self._reader.block(*command, *lanes, *(">" for _ in lanes), timeout_ms=block_ms)
        except (NoGroup, Unreachable, TryLater):
            reply = None
        if reply is None:
            pending = self.lease.pending(RQ_PARTITION)
            return self.lease.adopt(RQ_PARTITION, pending, 0, 1) if pending else []
        delivered = [(lanes[name], entry) for name, entries in reply for entry, _ in entries]
        return self.lease.adopt(RQ_PARTITION, delivered, 0, 1)

    def report_end(self, claim: Claim, class_: OutcomeClass, error: str | None = None) -> None:
        """Report how an attempt ended; a report of a fenced attempt is refused and dropped."""
        outcome = Outcome(class_=class_, error=None if error is None else error[-ERROR_CHARACTERS:])
        try:
            if class_ is OutcomeClass.OK:
                self.queue.finish([(claim, outcome)])
            else:
                self.queue.fail(claim, outcome)
        except Refused:
            # The attempt is fenced: another one has the run.
            return
        finally:
            self.slots.drop(claim)

    def release(self, claim: Claim, why: str) -> None:
        """Hand an attempt back after its process has ended."""
        try:
            self.queue.release(claim, why)
        except (Refused, Unreachable, TryLater):
            # The reaper requeues it.
            return
        finally:
            self.slots.drop(claim)

    # ---- from other threads

    def _on_order(self, order: WorkerOrder) -> None:
        if order.order == "stop" and self.slots.find(order.run, order.fence) is not None:
            self._give_up("cancelled")
        elif order.order in ("drain", "hurry"):
            self._drained = True
        self.heartbeat.applied(order)

    def _on_failure(self, error: AgentqError) -> None:
        self._fault = error

    def _close_jobs(self) -> None:
        while not self._closed.wait(self.settings.tick_ms / 1000):
            for lanes in self.lanes:
                try:
                    submit_settlements(lanes)
                except AgentqError:
                    # Retried on the next tick; the heartbeat notices a server that is gone.
                    break
