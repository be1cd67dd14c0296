"""The claims that a worker holds, shared by its threads.

A claim is held from claiming until the server acknowledged its last report. All that time every heartbeat names it, and
no other worker can have the run. A process run takes a slot all that time, so a slot is free only when the server knows
it too. Function runs share the slots of their children.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from agentq.coordinator.runs.verbs import Claim
from agentq.worker.reporting.run_log import RunLog


class WorkerSlots:
    """The held claims, for a number of slots."""

    def __init__(self, slots: int, max_runs: int | None = None, log: RunLog | None = None) -> None:
        self.slots = slots
        self._log = log
        self.max_runs = max_runs
        """How many runs may be claimed in all, if there is a limit."""
        self.taken = 0
        """How many runs were ever claimed."""
        self.function_claims: dict[tuple[str, str], Claim] = {}
        """The function runs, by id and fence. Whole batches come and go in steps that need no lock."""
        self._child_slots = 0
        """Slots taken by children."""
        self.reserved = False
        """Whether a slot freed by a child is reserved for the next claim of a process run."""
        self._claims: dict[str, Claim] = {}
        self._changed = threading.Condition()
        self._on_free: Callable[[], None] = lambda: None
        self._on_full: Callable[[], None] = lambda: None
        self._on_take: Callable[[], None] = lambda: None

    def on_free(self, act: Callable[[], None]) -> None:
        """Set what to call, in any thread, when a slot becomes free."""
        self._on_free = act

    def on_full(self, act: Callable[[], None]) -> None:
        """Set what to call, in any thread, when a child has taken the last slot."""
        self._on_full = act

    def on_take(self, act: Callable[[], None]) -> None:
        """Set what to call, in any thread, when function runs were claimed."""
        self._on_take = act

    def resize(self, slots: int) -> None:
        """Change the number of slots. With fewer, held claims stay, and nothing is claimed until there is room."""
        with self._changed:
            self.slots = slots
        self._on_free()

    def take(self, claim: Claim) -> None:
        with self._changed:
            self._claims[claim.id] = claim
            self.taken += 1
        if self._log is not None:
            self._log.started([claim])

    def drop(self, claim: Claim) -> None:
        """Release a claim, if exactly this attempt is held."""
        if self._log is not None:
            self._log.dropped(claim)
        with self._changed:
            if self.function_claims.pop(claim[:2], None) is not None:
                return
            if self._claims.get(claim.id) != claim:
                return
            del self._claims[claim.id]
            self._changed.notify_all()
        self._on_free()

    def take_functions(self, claims: Sequence[Claim]) -> None:
        self.function_claims.update(zip([claim[:2] for claim in claims], claims, strict=True))
        with self._changed:
            self.taken += len(claims)
        if self._log is not None:
            self._log.started(claims)
        self._on_take()

    def uncount(self, number: int) -> None:
        """Do not count this many claims towards max_runs: they have not begun."""
        with self._changed:
            self.taken -= number

    def surplus(self) -> int:
        """How many claims exceed max_runs: the claiming threads do not wait for each other."""
        with self._changed:
            return 0 if self.max_runs is None else max(0, self.taken - self.max_runs)

    def take_child_slot(self) -> bool:
        """Take a slot for a child; false if none is free."""
        with self._changed:
            free = self.slots - len(self._claims) - self._child_slots
            if free <= self.reserved:
                return False
            self._child_slots += 1
        if free == 1:
            self._on_full()
        return True

    def free_child_slot(self, *, reserve: bool = False) -> None:
        """Free a child's slot; with `reserve`, no other child gets it before the next claim of a process run."""
        with self._changed:
            wake = reserve or self.slots - len(self._claims) - self._child_slots <= 0
            self._child_slots -= 1
            self.reserved = self.reserved or reserve
        if wake:
            self._on_free()

    def end_reservation(self) -> None:
        """That claim is done."""
        with self._changed:
            self.reserved = False

    def child_slots_free(self) -> int:
        """How many more children may take a slot."""
        with self._changed:
            return max(0, self.slots - len(self._claims) - self._child_slots - self.reserved)

    def runs_left(self) -> int | None:
        """How many more runs may be claimed in all, if there is a limit."""
        with self._changed:
            return None if self.max_runs is None else max(0, self.max_runs - self.taken)

    def free(self) -> int:
        with self._changed:
            free = self.slots - len(self._claims) - self._child_slots
            return free if self.max_runs is None else min(free, self.max_runs - self.taken)

    def held(self) -> list[Claim]:
        with self._changed:
            return [*self._claims.values(), *self.function_claims.values()]

    def find(self, run: str, fence: str) -> Claim | None:
        """The claim with this fence, if it is held."""
        with self._changed:
            claim = self._claims.get(run) or self.function_claims.get((run, fence))
            return claim if claim is not None and claim.fence == fence else None

    def is_empty(self) -> bool:
        with self._changed:
            return not self._claims and not self.function_claims
