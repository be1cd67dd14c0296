"""When children hold every slot, one gives its slot up now and then, so that a process run gets its turn.

That child gets no more calls, and gives its slot up when it is idle. The slot is then reserved for one claim of process
runs. If there are none, the children get it back a moment later.
"""

from __future__ import annotations

from collections.abc import Collection

from agentq.worker.functions.child_process import ChildProcess
from agentq.worker.slots import WorkerSlots

FULL_SLOTS_MS = 1_000
"""How long children may hold every slot."""


class SlotSharing:
    """Decides which child gives up its slot. Not thread-safe; the engine holds the lock."""

    def __init__(self, slots: WorkerSlots) -> None:
        self._slots = slots
        self._full_since_ms: int | None = None
        """Since when children have held every slot that no process run has."""
        self._leaving: set[ChildProcess] = set()

    def update(self, with_slot: Collection[ChildProcess], now: int) -> None:
        """Check whether the children have held all slots for too long."""
        if not with_slot or self._slots.child_slots_free() or self._slots.reserved:
            self._full_since_ms = None
            self._leaving = set()
        elif self._full_since_ms is None:
            self._full_since_ms = now
        elif self.is_due(now):
            # Asynchronous calls overlap: draining such a child would take as long as its longest call.
            candidates = [child for child in with_slot if child.own is None and not child.asynchronous]
            self._leaving = {child for child in candidates if not child.has_waiting()}
            if candidates:
                self._leaving.add(min(candidates, key=lambda child: child.call_ms * len(child.calls)))

    def is_due(self, now: int) -> bool:
        """Whether the next slot freed by a child is reserved for process runs."""
        return self._full_since_ms is not None and now - self._full_since_ms >= FULL_SLOTS_MS

    def due_ms(self, now: int) -> int | None:
        """In how long that is due, if it is not yet."""
        return None if self._full_since_ms is None or self.is_due(now) else self._full_since_ms + FULL_SLOTS_MS - now

    def is_leaving(self, child: ChildProcess) -> bool:
        """Whether a child gets no more calls until it has given up its slot."""
        return child in self._leaving
