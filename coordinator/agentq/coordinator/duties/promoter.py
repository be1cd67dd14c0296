"""Promotes due runs, expires runs that waited too long, enforces stops that no worker confirms, deletes ended runs and
notifies the dependents that one script could not notify."""

from __future__ import annotations

from agentq.coordinator.clock import wall_ms
from agentq.coordinator.duties.ticker import DutyRound
from agentq.coordinator.storage.store import NamespaceStore

CALLS_PER_ROUND = 100
ROUND_INTERVAL_TICKS = 6
"""How often a keeper checks by itself that the scripts wake for earlier deadlines."""


class Promoter:
    """Fires the timers of runs."""

    name = "promoter"
    hasty = True
    ticks = ROUND_INTERVAL_TICKS

    def __init__(self, store: NamespaceStore, tick_ms: int) -> None:
        self.store = store
        self.tick_ms = tick_ms

    def run_once(self, partition: int) -> DutyRound:
        """Do all due work in bounded calls; after a hundred of them, the next round continues at once."""
        rung, settling, next_at = 0, 0, 0
        for _ in range(CALLS_PER_ROUND):
            settling = self.store.call("duty/notify_dependents", partition)
            # After the notifications, since a notified run may be due soon.
            done, first = self.store.call("duty/run_timers", partition)
            rung, next_at = rung + done, int(float(first))
            if not done and not settling:
                break
        now = self.store.now() or wall_ms()
        wait = max(0, next_at - int(now)) if next_at else ROUND_INTERVAL_TICKS * self.tick_ms
        return DutyRound({"rung": rung, "settling": settling}, 0 if settling else wait)
