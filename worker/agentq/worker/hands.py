"""What a worker holds: the one place that its threads share.

A run is in the worker's hands from its claim until its last word was acknowledged by the server. All that time it takes
a slot, every heartbeat names it, and nobody else may have it; so a slot is free only when the server knows so too.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from agentq.coordinator.queue import Claim


class Hands:
    """The claims in hand, for a number of slots."""

    def __init__(self, slots: int, most: int | None = None) -> None:
        self.slots = slots
        self.most = most
        """Runs to take in all, if there is a limit."""
        self.taken = 0
        """Runs ever taken."""
        self._claims: dict[str, Claim] = {}
        self._changed = threading.Condition()
        self._on_free: Callable[[], None] = lambda: None

    def on_free(self, act: Callable[[], None]) -> None:
        """What to do, in whichever thread, when a slot becomes free."""
        self._on_free = act

    def resize(self, slots: int) -> None:
        """Have more slots, or fewer: then what is held is kept, and nothing is taken until there is room again."""
        with self._changed:
            self.slots = slots
        self._on_free()

    def take(self, claim: Claim) -> None:
        with self._changed:
            self._claims[claim.id] = claim
            self.taken += 1

    def drop(self, claim: Claim) -> None:
        """Let go, if it is still this attempt that is held."""
        with self._changed:
            if self._claims.get(claim.id) != claim:
                return
            del self._claims[claim.id]
            self._changed.notify_all()
        self._on_free()

    def free(self) -> int:
        with self._changed:
            free = self.slots - len(self._claims)
            return free if self.most is None else min(free, self.most - self.taken)

    def held(self) -> list[Claim]:
        with self._changed:
            return list(self._claims.values())

    def holds(self, run: str, fence: str) -> Claim | None:
        """The claim with this fence, if it is held."""
        with self._changed:
            claim = self._claims.get(run)
            return claim if claim is not None and claim.fence == fence else None

    def empty(self) -> bool:
        with self._changed:
            return not self._claims
