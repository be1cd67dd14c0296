"""Calls that are to stop: because they take too long, or because somebody wants them to.

Each is struck first, by an exception that it may catch to tidy up, and if it has not ended after its grace, the child
that it is in is killed.
"""

from __future__ import annotations

from dataclasses import dataclass

from agentq.coordinator.clock import monotonic_ms
from agentq.coordinator.model.lifecycle import OutcomeClass
from agentq.worker.functions import protocol
from agentq.worker.functions.child_process import CallKey, ChildProcess


@dataclass(slots=True)
class PendingStop:
    """One call, and when it is struck and its child killed; None of what has been done, or will not be."""

    child: ChildProcess
    class_: OutcomeClass
    """How it ends by that."""
    reason: str
    grace_ms: int
    timeout_at_ms: int | None = None
    """When its time is over,"""
    silence_at_ms: int | None = None
    """and when it will have been silent for too long,"""
    silence_ms: int = 0
    """which is so long."""
    kill_at_ms: int | None = None
    """Once it was struck: when force is used."""
    released: bool = False
    """It is handed back, to go on elsewhere."""

    def due_ms(self) -> int:
        times = (self.kill_at_ms, self.timeout_at_ms, self.silence_at_ms)
        return min(time for time in times if time is not None)

    def is_overdue(self, now: int) -> bool:
        """Whether its child was killed for it."""
        return self.kill_at_ms is not None and self.kill_at_ms <= now

    def interrupt(self, key: CallKey, why: int, now: int) -> None:
        self.timeout_at_ms = self.silence_at_ms = None
        self.kill_at_ms = now + self.grace_ms
        self.child.interrupt(key, why)


class CallStops:
    """Used by one thread at a time: `engine` sees to that."""

    def __init__(self) -> None:
        self._stops: dict[CallKey, PendingStop] = {}

    def __bool__(self) -> bool:
        return bool(self._stops)

    def limit(self, child: ChildProcess, key: CallKey, timeout_ms: int, silence_ms: int, grace_ms: int) -> None:
        """It has begun, and may take so long, and be silent for so long; 0 is no limit."""
        now = monotonic_ms()
        stop = PendingStop(child, OutcomeClass.TIMEOUT, f"ran longer than {timeout_ms} ms", grace_ms)
        stop.timeout_at_ms = now + timeout_ms if timeout_ms else None
        stop.silence_at_ms = now + silence_ms if silence_ms else None
        stop.silence_ms = silence_ms
        self._stops.setdefault(key, stop)

    def reset_silence(self, key: CallKey) -> None:
        """It has written something."""
        stop = self._stops.get(key)
        if stop is not None and stop.silence_at_ms is not None:
            stop.silence_at_ms = monotonic_ms() + stop.silence_ms

    def stop(self, child: ChildProcess, key: CallKey, reason: str, grace_ms: int, *, released: bool = False) -> None:
        """Stop it now. What was ordered first counts, but the shorter grace."""
        now = monotonic_ms()
        known = self._stops.get(key)
        if known is not None and known.kill_at_ms is not None:
            known.kill_at_ms = min(known.kill_at_ms, now + grace_ms)
            return
        stop = self._stops[key] = PendingStop(child, OutcomeClass.CANCELLED, reason, grace_ms, released=released)
        stop.interrupt(key, protocol.UNWANTED_STOP, now)

    def forget(self, key: CallKey) -> PendingStop | None:
        """It has ended."""
        return self._stops.pop(key, None) if self._stops else None

    def run_due(self, now: int) -> None:
        """Do what is due."""
        for key, stop in list(self._stops.items()):
            if key not in stop.child.calls:
                del self._stops[key]
            elif stop.is_overdue(now):
                stop.child.kill()
            elif stop.kill_at_ms is None and stop.due_ms() <= now:
                if stop.timeout_at_ms is None or stop.timeout_at_ms > now:
                    stop.class_, stop.reason = OutcomeClass.SILENCE, f"was silent for {stop.silence_ms} ms"
                stop.interrupt(key, protocol.LATE_STOP, now)

    def due_ms(self) -> int | None:
        """When something is due next."""
        return min((stop.due_ms() for stop in self._stops.values()), default=None)
