"""When children hold every slot: one gives its slot up now and then, so that a run of another kind gets its turn.

A child that is to give it up gets no more calls, and does when it has nothing left to do. The slot is then kept for one
claim of such runs. If there are none, the children have it again a moment later.
"""

from __future__ import annotations

from collections.abc import Collection

from agentq.worker.functions.child_process import ChildProcess
from agentq.worker.slots import WorkerSlots

FULL_SLOTS_MS = 1_000
"""How long children may hold every slot."""


class SlotSharing:
    """Whose turn it is. Used by one thread at a time."""

    def __init__(self, hands: WorkerSlots) -> None:
        self._hands = hands
        self._full_ms: int | None = None
        """Since when children have held every slot that is not a run's."""
        self._leaving: set[ChildProcess] = set()

    def look(self, seated: Collection[ChildProcess], now: int) -> None:
        """See whether the children have held all slots for too long."""
        if not seated or self._hands.child_slots_free() or self._hands.reserved:
            self._full_ms = None
            self._leaving = set()
        elif self._full_ms is None:
            self._full_ms = now
        elif self.is_due(now):
            # What is awaited overlaps, so that such a child would stand still for as long as its longest call.
            mine = [child for child in seated if child.own is None and not child.asynchronous]
            self._leaving = {child for child in mine if not child.waiting()}
            if mine:
                self._leaving.add(min(mine, key=lambda child: child.each_ms * len(child.calls)))

    def is_due(self, now: int) -> bool:
        """Whether the next slot that a child gives up is kept for others."""
        return self._full_ms is not None and now - self._full_ms >= FULL_SLOTS_MS

    def due_ms(self, now: int) -> int | None:
        """In how long that is so, if it is not yet."""
        return None if self._full_ms is None or self.is_due(now) else self._full_ms + FULL_SLOTS_MS - now

    def is_leaving(self, child: ChildProcess) -> bool:
        """Whether it gets no more calls until it has given up its slot."""
        return child in self._leaving
