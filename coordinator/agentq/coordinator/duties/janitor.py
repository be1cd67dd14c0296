"""Trims lanes and repairs inconsistent records.

In a healthy namespace the janitor finds nothing: the scripts keep runs, indexes, lanes and holders together. It is for
damage to Redis itself (a stream, a hash or a group deleted by hand, evicted, lost in a failover), for consumers
without a worker, and for lanes that are no longer used.
"""

from __future__ import annotations

from agentq.coordinator.duties.ticker import DutyRound
from agentq.coordinator.model.lifecycle import State
from agentq.coordinator.storage.store import NamespaceStore

LANES_PER_ROUND = 200
PLANS_PER_ROUND = 20
QUEUES_PER_ROUND = 500
LANE_IDLE_MS = 3_600_000
ROUND_INTERVAL_MS = 60_000


class Janitor:
    """Repairs lanes, limits and plans, and compares the indexes with the runs a part at a time."""

    name = "janitor"
    hasty = False
    ticks = 12

    def __init__(self, store: NamespaceStore, *, idle_ms: int = LANE_IDLE_MS) -> None:
        self.store = store
        self.idle_ms = idle_ms

    def run_once(self, partition: int) -> DutyRound:
        """Check the lanes, and one part of the runs of each queue in each live state."""
        done = dict.fromkeys(("given_back", "consumers", "trimmed", "closed", "repaired"), 0)
        for lane in self._some_lanes(partition):
            reply = self.store.call("repair/lane", partition, lane, self.idle_ms)
            for name, number in zip(("given_back", "consumers", "trimmed", "closed"), reply, strict=True):
                done[name] += number
        for limit in self._some_limits(partition):
            done["repaired"] += int(self.store.call("repair/limit", partition, limit))
        for plan in self._some_plans(partition):
            done["repaired"] += int(self.store.call("repair/plan", partition, plan))
        done["repaired"] += int(self.store.call("repair/state_indexes", partition, *State))
        for queue in self._some_queues(partition):
            done["repaired"] += self.reconcile(partition, queue, *State)
        return DutyRound(done, ROUND_INTERVAL_MS)

    def reconcile(self, partition: int, queue: str, *states: State) -> int:
        """Compare the next part of the indexes with the runs; returns how many were repaired."""
        _, repaired, _ = self.store.call("repair/queue", partition, queue, self.store.dice(), *states)
        return int(repaired)

    def _some_queues(self, partition: int) -> list[str]:
        """All queues, or a random part where there are very many."""
        queues: list[str] = self.store.connection.command(
            "SRANDMEMBER", self.store.key(partition, "queues"), QUEUES_PER_ROUND
        )
        return queues

    def _some_limits(self, partition: int) -> list[str]:
        limits: list[str] = self.store.connection.command(
            "SRANDMEMBER", self.store.key(partition, "limits"), LANES_PER_ROUND
        )
        return limits

    def _some_plans(self, partition: int) -> list[str]:
        plans: list[str] = self.store.connection.command(
            "ZRANDMEMBER", self.store.key(partition, "plans"), PLANS_PER_ROUND
        )
        return plans

    def _some_lanes(self, partition: int) -> list[str]:
        """All lanes, or a random part where there are very many."""
        lanes: list[str] = self.store.connection.command(
            "ZRANDMEMBER", self.store.key(partition, "lanes"), LANES_PER_ROUND
        )
        return lanes
