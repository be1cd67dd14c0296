"""Claims runs: a thread with the worker's one blocking connection. Its tasks:

1. With free slots, claim. If there is nothing, block on the lanes and the inbox; the server claims the next run for
   this worker at once.
2. Without free slots, block on the inbox alone, so that orders arrive at once. A slot that becomes free ends the block.
3. After a failed read, adopt what was delivered into the broken connection before blocking again.
4. Claim every 30 s even without a wake-up, in case one was lost.
5. Function runs take no slots: claim as many as the engine has room for, while the engine does not claim itself.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from agentq.coordinator.clock import monotonic_ms
from agentq.coordinator.errors import AgentqError, Draining, Evicted, TryLater, Unreachable
from agentq.coordinator.model.spec import is_function_lane
from agentq.coordinator.runs.verbs import Claim
from agentq.coordinator.storage.connection import NoGroup
from agentq.coordinator.workers.lease import WorkerLease
from agentq.worker.slots import WorkerSlots
from agentq.worker.worker_thread import WorkerThread

BLOCK_MS = 10_000
PARTITION_BLOCK_MS = 500
"""How long to block on one partition, where each may be on another node of a cluster."""
SAFETY_CLAIM_MS = 30_000
RETRY_MS = 1_000


@dataclass(frozen=True, slots=True)
class ClaimListener:
    """Callbacks of the claim loop; called in the claiming thread."""

    on_claim: Callable[[Claim], None]
    on_order: Callable[[], None]
    """Something is in the inbox; the next heartbeat reads it."""
    on_idle: Callable[[], None]
    """There was nothing to claim."""
    on_failure: Callable[[AgentqError], None]
    on_surplus: Callable[[Claim], None] = lambda _: None
    """This run exceeds max_runs and is to be handed back."""


class FunctionIntake(Protocol):
    """Takes function runs; the function engine is one."""

    def room_here(self) -> int:
        """How many function runs this thread should claim."""

    def claims_itself(self) -> bool:
        """Whether the engine claims at the moment. Then this thread does not know whether any are left."""

    def take(self, claims: Sequence[Claim], requested: int | None = None) -> None:
        """These runs were claimed when `requested` were asked for."""

    def on_claiming_done(self) -> None:
        """There is nothing more to claim now."""


class NoFunctionIntake:
    """A worker that executes no function runs."""

    def room_here(self) -> int:
        return 0

    def claims_itself(self) -> bool:
        return False

    def take(self, claims: Sequence[Claim], requested: int | None = None) -> None:
        raise AssertionError(f"{len(claims)} function runs were claimed, and none of {requested} was wanted")

    def on_claiming_done(self) -> None:
        """Does nothing."""


class ClaimLoop:
    """Keeps a worker's slots filled."""

    def __init__(
        self, lease: WorkerLease, slots: WorkerSlots, listener: ClaimListener, functions: FunctionIntake | None = None
    ) -> None:
        self.lease = lease
        self.functions = functions or NoFunctionIntake()
        self._blocks_on_functions = False
        """Whether the current or next block covers the lanes of functions."""
        self.slots = slots
        self.listener = listener
        self._reader = lease.reader()
        self._closed = threading.Event()
        self._pause = threading.Event()
        self._claim_due = True
        self._adoption_due = False
        self._blocked_partition = 0
        self._lanes_changed = False
        self._safety_ms = monotonic_ms() + SAFETY_CLAIM_MS
        slots.on_free(self._wake)
        slots.on_full(self._on_slots_full)
        self._blocks_on_runs = False
        """Whether it blocks on lanes whose runs take a slot."""
        self._thread = WorkerThread(self._run, "agentq-claims", listener.on_failure)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Stop claiming; returns when no more runs can arrive."""
        self._closed.set()
        self._pause.set()
        self._reader.unblock()
        self._thread.join()
        self._reader.close()

    def lanes_changed(self) -> None:
        """The worker serves other lanes than before."""
        self._lanes_changed = True
        self._wake()

    def functions_wanted(self) -> None:
        """The engine wants function runs from this thread."""
        if not self._blocks_on_functions:
            self._wake()

    def claim_again(self) -> None:
        """A run has ended: look for more."""
        self._wake()

    def _wake(self) -> None:
        self._claim_due = True
        self._reader.unblock()

    def _on_slots_full(self) -> None:
        """A child took the slot that the block is for."""
        if self._blocks_on_runs:
            self._reader.unblock()

    def _run(self) -> None:
        while not self._closed.is_set():
            try:
                self._claim_or_block()
            except Draining:
                self._pause.wait()
            except Evicted:
                # The heartbeat registers again: wake it, and retry after that.
                self.listener.on_order()
                self._back_off()
            except (Unreachable, TryLater):
                self._adoption_due = True
                self._back_off()
            except AgentqError as error:
                self.listener.on_failure(error)
                return

    def _back_off(self) -> None:
        self._claim_due = True
        self._pause.wait(random.uniform(RETRY_MS / 10, RETRY_MS) / 1000)

    def _claim_or_block(self) -> None:
        if self._lanes_changed:
            # Entries delivered from a lane that is no longer served are pending for this worker alone.
            self._lanes_changed, self._adoption_due = False, True
            self.lease.forget_lanes()
        if self._adoption_due:
            self._adopt_pending()
        self._blocks_on_functions = True
        claimed_elsewhere, reserved, free, function_room = (
            self.functions.claims_itself(),  # first: the engine may stop claiming a moment later
            self.slots.reserved,
            self.slots.free(),
            self.functions.room_here(),
        )
        if (free > 0 or function_room > 0) and (reserved or self._claim_due or monotonic_ms() >= self._safety_ms):
            self._claim_due = False
            self._safety_ms = monotonic_ms() + SAFETY_CLAIM_MS
            claims = self._dispatch(self.lease.claim(max(free, 0), function_room), function_room)
            if claims:
                self._claim_due = True
            elif function_room > 0 or not claimed_elsewhere:
                self.listener.on_idle()
            if reserved:
                # End the reservation in any case: the functions have waited for it.
                self.slots.end_reservation()
                self.functions.on_claiming_done()
            if claims or reserved:
                return
        elif reserved:
            self.slots.end_reservation()
        if not self._closed.is_set():
            self._blocks_on_functions = function_room > 0
            if not self._blocks_on_functions and self.functions.room_here() > 0:
                # The engine wanted calls a moment ago and did not wake this thread, which was not blocking.
                self._claim_due = True
                return
            self.functions.on_claiming_done()
            self._block(max(free, 0), function_room)

    def _dispatch(self, claims: list[Claim], requested: int | None = None) -> list[Claim]:
        functions = [claim for claim in claims if is_function_lane(claim.lane)]
        if functions:
            self.functions.take(functions, requested)
        for claim in claims:
            if not is_function_lane(claim.lane):
                self.dispatch_run(claim)
        return claims

    def dispatch_run(self, claim: Claim) -> None:
        """Dispatch a run that takes a slot of its own, claimed here or along with function runs."""
        self.slots.take(claim)
        if self.slots.surplus():
            self.slots.uncount(1)
            self.listener.on_surplus(claim)
        else:
            self.listener.on_claim(claim)

    def _adopt_pending(self) -> None:
        for partition in self.lease.store.partitions():
            entries = self.lease.pending(partition)
            if entries:
                self._adopt(partition, entries)
        self._adoption_due = False

    def _adopt(self, partition: int, entries: Sequence[tuple[str, str]]) -> None:
        free, function_room = self.slots.free(), self.functions.room_here()
        self._dispatch(self.lease.adopt(partition, entries, free, function_room))

    def _partitions_to_block(self) -> tuple[Sequence[int], int]:
        """The partitions to block on and for how long: in turn where they are on several servers."""
        partitions = self.lease.store.partitions()
        if len(partitions) == 1 or not self._reader.is_spread:
            return partitions, BLOCK_MS
        self._blocked_partition = (self._blocked_partition + 1) % len(partitions)
        return partitions[self._blocked_partition : self._blocked_partition + 1], PARTITION_BLOCK_MS

    def _block(self, free: int, function_room: int) -> None:
        partitions, block_ms = self._partitions_to_block()
        self._blocks_on_runs = free > 0
        if free > 0 >= self.slots.free():
            self._blocks_on_runs = False
            return  # the slot was taken a moment ago
        try:
            arrived = self.lease.watch(self._reader, free, function_room, block_ms, partitions)
        except NoGroup:
            # A lane was closed, or its group destroyed: a claim creates it again if it is still needed.
            self._claim_due = True
            self.listener.on_order()
            self._pause.wait(random.uniform(0, RETRY_MS / 10) / 1000)
            return
        finally:
            self._blocks_on_runs = False
        if arrived.ordered:
            self._claim_due = True
            self.listener.on_order()
        if arrived.claims:
            functions = sum(is_function_lane(claim.lane) for claim in arrived.claims)
            self._claim_due = (
                self._claim_due or 0 < function_room <= functions or 0 < free <= len(arrived.claims) - functions
            )
            self._dispatch(arrived.claims, function_room)
        for partition, entries in arrived.delivered.items():
            self._claim_due = self._adoption_due = True
            self._adopt(partition, entries)
            self._adoption_due = False
