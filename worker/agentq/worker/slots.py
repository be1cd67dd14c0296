"""What a worker holds: the one place that its threads share.

A run is in the worker's hands from its claim until its last word was acknowledged by the server. All that time every
heartbeat names it, and nobody else may have it. A run that is a process of its own takes a slot all that time; so a
slot is free only when the server knows so too. Function runs share the slots of the children that they are in.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from agentq.coordinator.runs.verbs import Claim
from agentq.worker.reporting.run_log import RunLog


class WorkerSlots:
    """The claims in hand, for a number of slots."""

    def __init__(self, slots: int, max_runs: int | None = None, log: RunLog | None = None) -> None:
        self.slots = slots
        self._log = log
        self.max_runs = max_runs
        """Runs to take in all, if there is a limit."""
        self.taken = 0
        """Runs ever taken."""
        self.function_claims: dict[tuple[str, str], Claim] = {}
        """The function runs, by id and fence. Whole batches come and go at once, in steps that need no lock."""
        self._child_slots = 0
        """Slots that are taken by children."""
        self.reserved = False
        """Whether one that a child has given up is kept from the others, for the next claim of what is no call."""
        self._claims: dict[str, Claim] = {}
        self._changed = threading.Condition()
        self._on_free: Callable[[], None] = lambda: None
        self._on_full: Callable[[], None] = lambda: None
        self._on_take: Callable[[], None] = lambda: None

    def on_free(self, act: Callable[[], None]) -> None:
        """What to do, in whichever thread, when a slot becomes free."""
        self._on_free = act

    def on_full(self, act: Callable[[], None]) -> None:
        """What to do, in whichever thread, when a child has taken the last slot."""
        self._on_full = act

    def on_take(self, act: Callable[[], None]) -> None:
        """What to do, in whichever thread, when function runs were taken."""
        self._on_take = act

    def resize(self, slots: int) -> None:
        """Have more slots, or fewer: then what is held is kept, and nothing is taken until there is room again."""
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
        """Let go, if it is still this attempt that is held."""
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
        """So many that were taken have not begun, and do not count."""
        with self._changed:
            self.taken -= number

    def surplus(self) -> int:
        """How many more were taken than may be: those who claim do not wait for each other."""
        with self._changed:
            return 0 if self.max_runs is None else max(0, self.taken - self.max_runs)

    def take_child_slot(self) -> bool:
        """Take a slot for a child, if there is one."""
        with self._changed:
            free = self.slots - len(self._claims) - self._child_slots
            if free <= self.reserved:
                return False
            self._child_slots += 1
        if free == 1:
            self._on_full()
        return True

    def free_child_slot(self, *, reserve: bool = False) -> None:
        """A child gives up its slot; with `keep`, no other child gets it before the next claim of what is no call."""
        with self._changed:
            wake = reserve or self.slots - len(self._claims) - self._child_slots <= 0
            self._child_slots -= 1
            self.reserved = self.reserved or reserve
        if wake:
            self._on_free()

    def end_reservation(self) -> None:
        """That claim is over."""
        with self._changed:
            self.reserved = False

    def child_slots_free(self) -> int:
        """How many more children may have something to do."""
        with self._changed:
            return max(0, self.slots - len(self._claims) - self._child_slots - self.reserved)

    def runs_left(self) -> int | None:
        """How many more runs may be taken in all, if there is a limit."""
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
