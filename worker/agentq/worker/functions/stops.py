"""Calls that are to stop: because their time is over, or because somebody wants them to.

Each is struck first, by an exception that it may catch to tidy up, and if it has not ended after its grace, the child
that it is in is killed.
"""

from __future__ import annotations

from dataclasses import dataclass

from agentq.coordinator.clock import monotonic_ms
from agentq.coordinator.lifecycle import OutcomeClass
from agentq.worker.functions import wire
from agentq.worker.functions.child import Child, Key


@dataclass(slots=True)
class Stopping:
    """One call, and when it is struck and its child killed; None of what has been done, or will not be."""

    child: Child
    class_: OutcomeClass
    """How it has ended if the child has to be killed."""
    reason: str
    strike_at_ms: int | None
    grace_ms: int
    kill_at_ms: int | None = None
    released: bool = False
    """It is handed back, to go on elsewhere."""


class Stops:
    """Used by one thread at a time: `engine` sees to that."""

    def __init__(self) -> None:
        self._stops: dict[Key, Stopping] = {}

    def __bool__(self) -> bool:
        return bool(self._stops)

    def limit(self, child: Child, key: Key, at_ms: int, grace_ms: int, timeout_ms: int) -> None:
        """Its time will be over then."""
        error = f"ran longer than {timeout_ms} ms"
        self._stops.setdefault(key, Stopping(child, OutcomeClass.TIMEOUT, error, at_ms, grace_ms))

    def order(self, child: Child, key: Key, reason: str, grace_ms: int, *, released: bool = False) -> None:
        """Stop it now. What was ordered first counts, but the shorter grace."""
        kill_at_ms = monotonic_ms() + grace_ms
        known = self._stops.get(key)
        if known is not None and known.strike_at_ms is None:
            known.kill_at_ms = min(known.kill_at_ms or kill_at_ms, kill_at_ms)
            return
        self._stops[key] = Stopping(child, OutcomeClass.CANCELLED, reason, None, grace_ms, kill_at_ms, released)
        child.strike(key, wire.ENDED)

    def forget(self, key: Key) -> Stopping | None:
        """It has ended."""
        return self._stops.pop(key, None) if self._stops else None

    def of(self, key: Key) -> Stopping | None:
        return self._stops.get(key)

    def act(self, now: int) -> None:
        """Do what is due."""
        for key, stop in list(self._stops.items()):
            if key not in stop.child.calls:
                del self._stops[key]
            elif stop.strike_at_ms is not None and stop.strike_at_ms <= now:
                stop.strike_at_ms, stop.kill_at_ms = None, now + stop.grace_ms
                stop.child.strike(key, wire.LATE)
            elif stop.kill_at_ms is not None and stop.kill_at_ms <= now:
                stop.child.kill()

    def due_ms(self) -> int | None:
        """When something is due next."""
        times = [time for stop in self._stops.values() for time in (stop.strike_at_ms, stop.kill_at_ms) if time]
        return min(times, default=None)
