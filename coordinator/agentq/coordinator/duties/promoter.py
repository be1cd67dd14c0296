"""Promote what is due, expire what has waited too long, end stops that nobody confirms, forget ended runs, and tell the
dependents that one script could not tell."""

from __future__ import annotations

from agentq.coordinator.clock import wall_ms
from agentq.coordinator.duties.ticker import DutyRound
from agentq.coordinator.storage.store import NamespaceStore

CALLS_PER_ROUND = 100
ROUND_INTERVAL_TICKS = 6
"""A keeper that the server tells of what is due sooner looks for itself now and then."""


class Promoter:
    """Rings the timers of runs."""

    name = "promoter"
    hasty = True
    ticks = ROUND_INTERVAL_TICKS

    def __init__(self, store: NamespaceStore, tick_ms: int) -> None:
        self.store = store
        self.tick_ms = tick_ms

    def run_once(self, partition: int) -> DutyRound:
        """Do all that is due, in bounded calls; what is left after a hundred of them is for the next round, at once."""
        rung, settling, next_at = 0, 0, 0
        for _ in range(CALLS_PER_ROUND):
            settling = self.store.call("duty/notify_dependents", partition)
            # After it, since whoever is told now may be due soon.
            done, first = self.store.call("duty/run_timers", partition)
            rung, next_at = rung + done, int(float(first))
            if not done and not settling:
                break
        now = self.store.now() or wall_ms()
        wait = max(0, next_at - int(now)) if next_at else ROUND_INTERVAL_TICKS * self.tick_ms
        return DutyRound({"rung": rung, "settling": settling}, 0 if settling else wait)
