"""Runs the duties: one process at a time, elected by a lock, or once from cron.

Every round is one or more scripts that any process may call any number of times; electing one *keeper* of a
partition's duties only saves work. So a keeper that dies costs a few ticks, and two keepers at once cost only commands.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from agentq.coordinator.clock import monotonic_ms, wall_ms
from agentq.coordinator.errors import AgentqError
from agentq.coordinator.model.ids import new_nonce
from agentq.coordinator.storage.store import NamespaceStore

log = logging.getLogger("agentq.duties")

LOCK_TICKS = 2
"""The lifetime of the lock in ticks: how long duties are not done after their keeper died."""
GAP_TICKS = 3
"""After a longer gap without a request for the lock, the reapers' watch begins again: the server may have been away."""


@dataclass(frozen=True, slots=True)
class DutyRound:
    """What a duty did in a round, and the milliseconds until the next round can have work."""

    done: dict[str, int]
    next_ms: int


class Duty(Protocol):
    """A periodic task."""

    name: str
    hasty: bool
    """Whether `Ticker.wake` runs it before its time."""
    ticks: int
    """How many ticks may pass between two rounds, if the scripts wake the keeper for earlier deadlines."""

    def run_once(self, partition: int) -> DutyRound: ...


class Ticker:
    """Runs duties in a thread until it is stopped. Its tasks:

    1. In every tick, take or renew the lock of each partition's duties: one command.
    2. As the keeper, run each duty when it is due, and at least every `Duty.ticks` ticks.
    3. Continue after any fault, and keep the last one in `fault`.
    4. Release the locks when it stops, so that another process takes over at once.
    """

    def __init__(self, store: NamespaceStore, duties: Sequence[Duty], tick_ms: int, *, owner: str = "") -> None:
        self.store = store
        self.tick_ms = tick_ms
        self.fault: AgentqError | None = None
        self.done_at_ms: dict[str, int] = {}
        """When each duty was last done here without a fault."""
        self._was_owner = bool(owner)
        self._owner = owner or new_nonce()
        """The worker's id, where a worker does the duties: the scripts wake it for earlier deadlines."""
        self._hasty = False
        self._stopped = threading.Event()
        self._woken = threading.Event()
        self._duties = duties
        self._ask_at = dict.fromkeys(store.partitions(), 0)
        self._due: dict[int, dict[Duty, int]] = {}
        """The next time of each duty, in the partitions whose lock this process holds."""
        self._thread = threading.Thread(target=self._run, name="agentq-duties", daemon=True)

    def start(self) -> None:
        """Start the thread, if there are duties."""
        if self._duties:
            self._thread.start()

    def stop(self, *, wait: bool = True) -> None:
        """Begin no more rounds. Without `wait`, for a process that is about to end, the current round ends with it.

        Nothing is left half done: a round is a sequence of scripts, each done completely or not at all, and the next
        round, in any process, does the rest.
        """
        self._stopped.set()
        self._woken.set()
        if wait and self._duties:
            self._thread.join()

    def wake(self) -> None:
        """Run the hasty duties at once, and ask for the lock if another process has it: a deadline became earlier."""
        self._hasty = True
        self._woken.set()

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._woken.clear()
            hasty, self._hasty = self._hasty, False
            next_at = min(self.look(partition, hasty=hasty) for partition in self.store.partitions())
            self._woken.wait(max(0, next_at - monotonic_ms()) / 1000)
        for partition in list(self._due):
            self._due.pop(partition)
            self._ask(partition, 0)

    def look(self, partition: int, *, hasty: bool = False) -> int:
        """Run the due duties of a partition if this process holds its lock; returns when to look again."""
        is_standby = hasty and partition not in self._due
        if is_standby or self._ask_at[partition] <= monotonic_ms():
            # Jitter, so that processes that tick at the same moment do not stay synchronized.
            self._ask_at[partition] = monotonic_ms() + int(self.tick_ms * random.uniform(0.8, 1))
            if not self._ask(partition, LOCK_TICKS * self.tick_ms):
                self._due.pop(partition, None)
            elif partition not in self._due:
                self._due[partition] = dict.fromkeys(self._duties, 0)
        due = self._due.get(partition, {})
        for duty, at in due.items():
            if not self._stopped.is_set() and (at <= monotonic_ms() or (hasty and duty.hasty)):
                due[duty] = monotonic_ms() + self._round(duty, partition)
        return min([self._ask_at[partition], *due.values()])

    @property
    def keeps(self) -> int:
        """The number of partitions whose lock this process holds."""
        return len(self._due)

    def _ask(self, partition: int, lasts_ms: int) -> bool:
        """Take or renew the lock for so long; returns whether this process holds it."""
        try:
            kept = self.store.call("duty/lock", partition, self._owner, lasts_ms, GAP_TICKS * self.tick_ms)
            self.fault = None
        except AgentqError as fault:
            self.fault = fault
            return False
        return bool(kept)

    def _round(self, duty: Duty, partition: int) -> int:
        """Run one round; returns the time to the next."""
        try:
            next_ms = duty.run_once(partition).next_ms
            self.done_at_ms[duty.name] = wall_ms()
        except AgentqError as fault:
            self.fault = fault
            return self.tick_ms
        except Exception as bug:  # the other duties go on
            log.exception("the duty '%s' failed in partition %d", duty.name, partition)
            self.fault = AgentqError(f"The duty '{duty.name}' failed: {bug!r}")
            return self.tick_ms
        return min(next_ms, (duty.ticks if self._was_owner else 1) * self.tick_ms)
