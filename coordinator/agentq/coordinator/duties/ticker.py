"""Runs the duties: one process at a time, elected by a lock, or once from cron.

Every round is one or more scripts that are right whoever calls them and however often; that one of all who could is the
*keeper* of a partition's duties only saves work. So a keeper that dies costs a few ticks, and two that believe to be it
cost nothing but commands.
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
"""For how many ticks the duties of a keeper that is not heard of any more stay undone."""
GAP_TICKS = 3
"""If nobody asks for the duties for longer than this, the server may have been away: the reapers' watch begins anew."""


@dataclass(frozen=True, slots=True)
class DutyRound:
    """What a duty did in a round, and after how many milliseconds the next round can matter."""

    done: dict[str, int]
    next_ms: int


class Duty(Protocol):
    """One thing that time imposes."""

    name: str
    hasty: bool
    """Whether it can be woken before its time."""
    ticks: int
    """How many ticks may pass between two rounds, if the server tells the keeper of what is due sooner."""

    def run_once(self, partition: int) -> DutyRound: ...


class Ticker:
    """Drives duties in a thread until it is stopped. Its tasks:

    1. Ask in every tick to be the keeper of each partition's duties, or to stay it: one command.
    2. As the keeper, run each duty when it is due, and at least every so many ticks as it asks for.
    3. Go on after any fault, and keep the last one for whoever asks.
    4. Give the duties up when it stops, so that another process takes them over at once.
    """

    def __init__(self, store: NamespaceStore, duties: Sequence[Duty], tick_ms: int, *, owner: str = "") -> None:
        self.store = store
        self.tick_ms = tick_ms
        self.fault: AgentqError | None = None
        self.done_at_ms: dict[str, int] = {}
        """When each duty was last done here without a fault, for whoever asks."""
        self._was_owner = bool(owner)
        self._owner = owner or new_nonce()
        """A worker's id, where a worker does the duties: the scripts tell it of what is due sooner than it knows."""
        self._hasty = False
        self._stopped = threading.Event()
        self._woken = threading.Event()
        self._duties = duties
        self._ask_at = dict.fromkeys(store.partitions(), 0)
        self._due: dict[int, dict[Duty, int]] = {}
        """Of the partitions whose duties we keep."""
        self._thread = threading.Thread(target=self._run, name="agentq-duties", daemon=True)

    def start(self) -> None:
        """Begin; where there are no duties, there is nothing to keep."""
        if self._duties:
            self._thread.start()

    def stop(self, *, wait: bool = True) -> None:
        """Begin no more rounds. Without `wait`, for a process that is about to end, the one under way ends with it.

        Nothing is left half done by that: a round is a row of scripts, each of which is done whole or not at all, and
        the next round, whoever's it is, finds what this one has not come to.
        """
        self._stopped.set()
        self._woken.set()
        if wait and self._duties:
            self._thread.join()

    def wake(self) -> None:
        """Run the hasty duties at once, and ask for the duties if another process has them: something is due sooner."""
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
        """Do what is due in a partition, if it is ours to do; returns when to look again."""
        is_standby = hasty and partition not in self._due
        if is_standby or self._ask_at[partition] <= monotonic_ms():
            # A little less each time, so that those who tick together do not do so for ever.
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
        """Of how many partitions the duties are done here at the moment."""
        return len(self._due)

    def _ask(self, partition: int, lasts_ms: int) -> bool:
        """Ask for the duties for so long; whether they are ours."""
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
