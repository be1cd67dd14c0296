"""Renews the worker's lease in a thread of its own, which no run can hold up. Its tasks:

1. Renew the lease every `heartbeat_ms`, or at once when asked, naming every held claim.
2. Pass on what the reply says: orders, and fenced runs.
3. Register again when the worker has changed or was declared lost, and fence the claims that the new registration does
   not list.
4. When the lease may end elsewhere because it could not be renewed, stop everything, once. The margin is one heartbeat;
   the clock is monotonic. A second thread watches this, because a heartbeat that the network swallows hangs for longer
   than that.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass

from agentq.coordinator.clock import monotonic_ms
from agentq.coordinator.errors import AgentqError, Evicted, Refused, TryLater, Unreachable
from agentq.coordinator.runs.verbs import Claim
from agentq.coordinator.workers.lease import HeartbeatReply, WorkerIdentity, WorkerLease, WorkerOrder
from agentq.worker.slots import WorkerSlots
from agentq.worker.worker_thread import WorkerThread

RETRY_MS = 500


@dataclass(frozen=True, slots=True)
class HeartbeatListener:
    """Callbacks of the heartbeat; called in its threads."""

    on_order: Callable[[WorkerOrder], None]
    on_fenced: Callable[[Claim], None]
    on_registered: Callable[[], None]
    """The server knows the changed worker."""
    on_lease_lost: Callable[[], None]
    """The lease may have ended: stop everything and hand it back."""
    on_failure: Callable[[AgentqError], None]
    """The server refuses this worker for good."""
    on_answering: Callable[[AgentqError | None], None] = lambda _: None
    """The server stopped answering, with the reason; None when it answers again."""


class Heartbeat:
    """Keeps a worker's lease."""

    def __init__(self, lease: WorkerLease, slots: WorkerSlots, listener: HeartbeatListener) -> None:
        self.lease = lease
        self.slots = slots
        self.listener = listener
        self._applied: dict[str, WorkerOrder] = {}
        self._delivered: set[str] = set()
        self.answering_since_ms: int | None = None
        """Since when the server has answered without a break; None if the last call failed."""
        self._unanswered = False
        self._new_identity: WorkerIdentity | None = None
        """The identity to register with next, if it has changed."""
        self._lock = threading.Lock()
        self._due = threading.Event()
        self._stopped = threading.Event()
        self._thread = WorkerThread(self._run, "agentq-heartbeat", listener.on_failure)
        self._lease_watch = WorkerThread(self._watch_lease, "agentq-lease", listener.on_failure)

    def start(self) -> None:
        self._thread.start()
        self._lease_watch.start()

    def beat_now(self) -> None:
        """Send the next heartbeat now: an order arrived or was applied."""
        self._due.set()

    def change(self, identity: WorkerIdentity) -> None:
        """Register again with other queues, labels or slots."""
        with self._lock:
            self._new_identity = identity
        self._due.set()

    def applied(self, order: WorkerOrder) -> None:
        """Acknowledge an applied order; the server may forget it."""
        with self._lock:
            self._applied[order.id] = order
        self._due.set()

    def stop(self) -> None:
        self._stopped.set()
        self._due.set()
        self._thread.join()
        self._lease_watch.join()

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                pause_ms = self._register_again() if self._new_identity is not None else self._beat()
            except Evicted:
                pause_ms = self._register_again()
            except (Unreachable, TryLater) as fault:
                pause_ms = self._on_unreachable(fault)
            except AgentqError as error:
                self.listener.on_failure(error)
                return
            self._due.wait(pause_ms / 1000)
            self._due.clear()

    def _beat(self) -> float:
        with self._lock:
            applied = list(self._applied.values())
        reply = self.lease.heartbeat(self.slots.held(), applied)
        with self._lock:
            for order in applied:
                del self._applied[order.id]
                self._delivered.discard(order.id)
        self._dispatch(reply)
        if self.answering_since_ms is None:
            self.answering_since_ms = monotonic_ms()
        if self._unanswered:
            self._unanswered = False
            self.listener.on_answering(None)
        # A slow reply renews the lease from the time of the request, so it may be nearly over.
        return min(self.lease.settings.heartbeat_ms, self.lease.trusted_ms)

    def _dispatch(self, reply: HeartbeatReply) -> None:
        for claim in reply.fenced_claims:
            self.listener.on_fenced(claim)
        for order in reply.orders:
            if order.id not in self._delivered:
                self._delivered.add(order.id)
                self.listener.on_order(order)

    def _register_again(self) -> float:
        # Claims taken from now on belong to the new registration and are not in its reply.
        held = self.slots.held()
        identity = self._new_identity
        if identity is not None:
            self.lease.identity = identity
        try:
            confirmed = set(self.lease.register())
        except (Unreachable, TryLater, Refused) as fault:
            return self._on_unreachable(fault)
        with self._lock:
            # It may have changed once more meanwhile.
            self._new_identity = None if self._new_identity is identity else self._new_identity
        for claim in held:
            if (claim.id, claim.fence) not in confirmed:
                self.listener.on_fenced(claim)
        self._delivered.clear()
        if identity is not None:
            self.listener.on_registered()
        return 0

    def _on_unreachable(self, fault: AgentqError) -> float:
        self.answering_since_ms = None
        if not self._unanswered:
            self._unanswered = True
            self.listener.on_answering(fault)
        return random.uniform(RETRY_MS / 2, RETRY_MS)

    def _watch_lease(self) -> None:
        """Call `on_lease_lost` before the lease can have ended elsewhere."""
        trusting = True
        while not self._stopped.is_set():
            left_ms = self.lease.trusted_ms
            if trusting and left_ms <= 0:
                self.listener.on_lease_lost()
            trusting = left_ms > 0
            self._stopped.wait((left_ms or self.lease.settings.heartbeat_ms / 4) / 1000)
