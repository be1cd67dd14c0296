"""Claiming: a thread with the worker's one blocking connection. Its tasks:

1. With free slots, claim; if nothing is there, block on the lanes and the inbox until something comes in, which the
   server then claims for us at once.
2. Without free slots, block on the inbox alone, so that an order is heard at once; a slot that becomes free ends that.
3. After any fault of a read, adopt what was delivered into the broken connection before blocking again.
4. Once in a while claim all the same, in case a wake-up was lost.
5. Function runs take no slots: as many are claimed as their engine has room for, while it leaves that to this thread.
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
    """Who hears of what came in; called in the claiming thread."""

    claimed: Callable[[Claim], None]
    ordered: Callable[[], None]
    """Something is in the inbox: the next heartbeat reads it."""
    idle: Callable[[], None]
    """There was nothing to claim."""
    failed: Callable[[AgentqError], None]
    surplus: Callable[[Claim], None] = lambda _: None
    """This one is more than may be taken in all, where there is a limit: it is to be handed back."""


class FunctionIntake(Protocol):
    """Who takes function runs."""

    def wanted_here(self) -> int:
        """How many would find a place, and are not claimed elsewhere."""

    def elsewhere(self) -> bool:
        """Whether they are claimed elsewhere at the moment: then we do not know whether there are any."""

    def take(self, claims: Sequence[Claim], asked: int | None = None) -> None:
        """These were claimed, when so many were asked for."""

    def settled(self) -> None:
        """There is nothing more to claim now."""


class NoFunctionIntake:
    """Nobody does."""

    def wanted_here(self) -> int:
        return 0

    def elsewhere(self) -> bool:
        return False

    def take(self, claims: Sequence[Claim], asked: int | None = None) -> None:
        raise AssertionError(f"{len(claims)} function runs were claimed, and none of {asked} was wanted")

    def settled(self) -> None:
        """Nothing has to be done about that."""


class ClaimLoop:
    """Keeps a worker's slots filled."""

    def __init__(
        self, lease: WorkerLease, hands: WorkerSlots, takers: ClaimListener, calls: FunctionIntake | None = None
    ) -> None:
        self.lease = lease
        self.calls = calls or NoFunctionIntake()
        self._with_calls = False
        """Whether the block that goes on, or comes next, is on the lanes of functions too."""
        self.hands = hands
        self.takers = takers
        self._reader = lease.reader()
        self._closed = threading.Event()
        self._pause = threading.Event()
        self._look = True
        self._strayed = False
        self._turn = 0
        self._anew = False
        self._safety_ms = monotonic_ms() + SAFETY_CLAIM_MS
        hands.on_free(self._slot_freed)
        hands.on_full(self._slots_taken)
        self._awaits_runs = False
        """Whether it is blocking on lanes of what takes a slot."""
        self._thread = WorkerThread(self._run, "agentq-claims", takers.failed)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Take nothing more, and return when nothing more can come."""
        self._closed.set()
        self._pause.set()
        self._reader.unblock()
        self._thread.join()
        self._reader.close()

    def look_anew(self) -> None:
        """The worker serves other lanes than before."""
        self._anew = True
        self._slot_freed()

    def calls_wanted(self) -> None:
        """Function runs are wanted, from here."""
        if not self._with_calls:
            self._slot_freed()

    def look_again(self) -> None:
        """Something is over: see whether there is more."""
        self._slot_freed()

    def _slot_freed(self) -> None:
        self._look = True
        self._reader.unblock()

    def _slots_taken(self) -> None:
        """A child has the slot that the block is for."""
        if self._awaits_runs:
            self._reader.unblock()

    def _run(self) -> None:
        while not self._closed.is_set():
            try:
                self._round()
            except Draining:
                self._pause.wait()
            except Evicted:
                # The heartbeat finds out too, and registers again; ask it to hurry, and try again after it.
                self.takers.ordered()
                self._wait_out()
            except (Unreachable, TryLater):
                self._strayed = True
                self._wait_out()
            except AgentqError as error:
                self.takers.failed(error)
                return

    def _wait_out(self) -> None:
        self._look = True
        self._pause.wait(random.uniform(RETRY_MS / 10, RETRY_MS) / 1000)

    def _round(self) -> None:
        if self._anew:
            # What was delivered from a lane that is not served any more is in nobody's hands but ours.
            self._anew, self._strayed = False, True
            self.lease.forget_lanes()
        if self._strayed:
            self._adopt_strayed()
        self._with_calls = True
        unsure, kept, free, calls = (
            self.calls.elsewhere(),  # first: what is claimed elsewhere now may be ours to claim a moment later
            self.hands.kept,
            self.hands.free(),
            self.calls.wanted_here(),
        )
        if (free > 0 or calls > 0) and (kept or self._look or monotonic_ms() >= self._safety_ms):
            self._look = False
            self._safety_ms = monotonic_ms() + SAFETY_CLAIM_MS
            claims = self._taken(self.lease.claim(max(free, 0), calls), calls)
            if claims:
                self._look = True
            elif calls > 0 or not unsure:
                self.takers.idle()
            if kept:
                # Whether something came for it or not: the functions have waited for this.
                self.hands.keep_no_more()
                self.calls.settled()
            if claims or kept:
                return
        elif kept:
            self.hands.keep_no_more()
        if not self._closed.is_set():
            self._with_calls = calls > 0
            if not self._with_calls and self.calls.wanted_here() > 0:
                # Since a moment ago; whoever wanted to say so found us about to look anyway.
                self._look = True
                return
            self.calls.settled()
            self._block(max(free, 0), calls)

    def _taken(self, claims: list[Claim], asked: int | None = None) -> list[Claim]:
        functions = [claim for claim in claims if is_function_lane(claim.lane)]
        if functions:
            self.calls.take(functions, asked)
        for claim in claims:
            if not is_function_lane(claim.lane):
                self.stray(claim)
        return claims

    def stray(self, claim: Claim) -> None:
        """A run with a slot of its own was claimed, here or along with function runs."""
        self.hands.take(claim)
        if self.hands.surplus():
            self.hands.give_back(1)
            self.takers.surplus(claim)
        else:
            self.takers.claimed(claim)

    def _adopt_strayed(self) -> None:
        for partition in self.lease.store.partitions():
            entries = self.lease.pending(partition)
            if entries:
                self._adopt(partition, entries)
        self._strayed = False

    def _adopt(self, partition: int, entries: Sequence[tuple[str, str]]) -> None:
        free, calls = self.hands.free(), self.calls.wanted_here()
        self._taken(self.lease.adopt(partition, entries, free, calls))

    def _in_turn(self) -> tuple[Sequence[int], int]:
        """The partitions to block on, and for how long: one after another where they are not all on one server."""
        partitions = self.lease.store.partitions()
        if len(partitions) == 1 or not self._reader.is_spread:
            return partitions, BLOCK_MS
        self._turn = (self._turn + 1) % len(partitions)
        return partitions[self._turn : self._turn + 1], PARTITION_BLOCK_MS

    def _block(self, free: int, calls: int) -> None:
        partitions, block_ms = self._in_turn()
        self._awaits_runs = free > 0
        if free > 0 >= self.hands.free():
            self._awaits_runs = False
            return  # it was taken a moment ago
        try:
            came = self.lease.watch(self._reader, free, calls, block_ms, partitions)
        except NoGroup:
            # A lane was closed, or its group destroyed: a claim makes good what is still needed.
            self._look = True
            self.takers.ordered()
            self._pause.wait(random.uniform(0, RETRY_MS / 10) / 1000)
            return
        finally:
            self._awaits_runs = False
        if came.ordered:
            self._look = True
            self.takers.ordered()
        if came.claims:
            functions = sum(is_function_lane(claim.lane) for claim in came.claims)
            self._look = self._look or 0 < calls <= functions or 0 < free <= len(came.claims) - functions
            self._taken(came.claims, calls)
        for partition, found in came.delivered.items():
            self._look = self._strayed = True
            self._adopt(partition, found)
            self._strayed = False
