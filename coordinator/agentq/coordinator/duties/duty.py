"""How duties are driven: by anyone, by several at once, or from cron.

Every round is one or more scripts that are right whoever calls them and however often; the lock only saves work. So a
worker that dies with the lock costs one lock time, and two that believe to have it cost nothing but commands.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from agentq.coordinator.clock import monotonic_ms
from agentq.coordinator.errors import AgentqError, TryLater
from agentq.coordinator.identity import new_nonce
from agentq.coordinator.store import Store


@dataclass(frozen=True, slots=True)
class Round:
    """What a duty did in a round, and after how many milliseconds the next round can matter."""

    done: dict[str, int]
    next_ms: int


class Duty(Protocol):
    """One thing that time imposes."""

    name: str
    hasty: bool
    """Whether it can be woken before its time."""

    def run_once(self, partition: int) -> Round: ...


class Ticker:
    """Drives duties in a thread until it is stopped. Its tasks:

    1. Run each duty of each partition when it is due, and at least every `tick_ms`.
    2. Leave it alone while somebody else has its lock.
    3. Go on after any fault, and keep the last one for whoever asks.
    """

    def __init__(self, store: Store, duties: Sequence[Duty], tick_ms: int, *, owner: str = "") -> None:
        self.store = store
        self.tick_ms = tick_ms
        self.fault: AgentqError | None = None
        self._hasty = False
        self._owner = owner or new_nonce()
        """A worker's id, where a worker does the duties: the scripts tell it of what is due sooner than it knows."""
        self._stopped = False
        self._woken = threading.Event()
        self._due = {(duty, partition): 0 for duty in duties for partition in store.partitions()}
        self._thread = threading.Thread(target=self._run, name="agentq-duties", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped = True
        self._woken.set()
        self._thread.join()

    def wake(self) -> None:
        """Run the hasty duties at once: something is due sooner than they knew."""
        self._hasty = True
        self._woken.set()

    def _run(self) -> None:
        while not self._stopped:
            self._woken.clear()
            hasty, self._hasty = self._hasty, False
            for duty, partition in self._due:
                if self._due[duty, partition] <= monotonic_ms() or (hasty and duty.hasty):
                    self._due[duty, partition] = monotonic_ms() + self._round(duty, partition)
            pause_ms = max(0, min(self._due.values()) - monotonic_ms())
            self._woken.wait(pause_ms / 1000)

    def _round(self, duty: Duty, partition: int) -> int:
        """Run one round if nobody else does; returns the time to the next."""
        try:
            next_ms = duty.run_once(partition).next_ms if self._locked(duty, partition) else self.tick_ms
            self.fault = None
        except AgentqError as fault:
            self.fault = fault
            next_ms = self.tick_ms
        # A little less each time, so that those who tick together do not do so for ever.
        return min(next_ms, int(self.tick_ms * random.uniform(0.8, 1)))

    def _locked(self, duty: Duty, partition: int) -> bool:
        key = self.store.key(partition, "duty", duty.name)
        try:
            keeper = self.store.connection.command("SET", key, self._owner, "NX", "GET", "PX", 2 * self.tick_ms)
        except TryLater:
            # A full server takes no lock; its duties, which let work out, matter all the more.
            return True
        if keeper is None:
            return True
        return keeper == self._owner and bool(self.store.connection.command("PEXPIRE", key, 2 * self.tick_ms))
