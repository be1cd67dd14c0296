"""Requeues the runs of workers whose lease has expired.

A reaper uses only the server's data. It marks a worker without a lease and declares it lost one grace period later if
the lease is still missing, and only after the reapers have watched this server without a gap for a full lease: after a
restart, a failover or a freeze, every worker has that long to come back.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from agentq.coordinator.clock import monotonic_ms, wall_ms
from agentq.coordinator.config.settings import Settings
from agentq.coordinator.duties.ticker import GAP_TICKS, DutyRound
from agentq.coordinator.storage.store import NamespaceStore

CALLS_PER_ROUND = 1000


@dataclass(frozen=True, slots=True)
class ReapResult:
    """What one pass did: workers marked, in doubt and lost, their runs, and when to run again (0: any time)."""

    marked: int
    doubtful: int
    lost: list[str]
    runs: int
    next_at_ms: int


class Reaper:
    """Marks workers without a lease, and later declares them lost."""

    name = "reaper"
    hasty = False
    ticks = 1

    def __init__(
        self,
        store: NamespaceStore,
        settings: Settings,
        *,
        server: str = "",
        lost: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.store = store
        self.settings = settings
        self.server = server
        self.lost = lost
        """Called with each worker that is declared lost."""

    def run_once(self, partition: int) -> DutyRound:
        reaped = self.reap(partition)
        now = int(self.store.now() or wall_ms())
        wait = max(0, reaped.next_at_ms - now) if reaped.next_at_ms else self.settings.tick_ms
        done = {"marked": reaped.marked, "lost": len(reaped.lost), "runs": reaped.runs}
        return DutyRound(done, min(wait, self.settings.tick_ms))

    def reap(self, partition: int) -> ReapResult:
        """One pass: mark workers without a lease; declare those lost that have been marked for the grace period."""
        times = (
            GAP_TICKS * self.settings.tick_ms,
            self.settings.lease_ms,
            self.settings.reap_grace_ms,
            self.store.dice(),
        )
        marked, runs, names = 0, 0, dict[str, None]()
        for _ in range(CALLS_PER_ROUND):
            reply = self.store.call("duty/reap_workers", partition, self.server, *times)
            marked, runs = marked + reply[0], runs + reply[2]
            names |= dict.fromkeys(reply[5:])
            if not reply[3]:
                break
        for name in names:
            self.lost(name)
        return ReapResult(marked, reply[1], list(names), runs, int(reply[4]))

    def reap_fully(self) -> ReapResult:
        """All passes in one call, for cron: wait for each grace period, until no worker is in doubt."""
        deadline = monotonic_ms() + self.settings.lease_ms + 2 * self.settings.reap_grace_ms
        marked, runs, names = 0, 0, dict[str, None]()
        while True:
            passes = [self.reap(partition) for partition in self.store.partitions()]
            marked += sum(each.marked for each in passes)
            runs += sum(each.runs for each in passes)
            names |= dict.fromkeys(name for each in passes for name in each.lost)
            doubtful = sum(each.doubtful for each in passes)
            if not doubtful or monotonic_ms() >= deadline:
                return ReapResult(marked, doubtful, list(names), runs, min(each.next_at_ms for each in passes))
            time.sleep(self.settings.reap_grace_ms / 1000)
