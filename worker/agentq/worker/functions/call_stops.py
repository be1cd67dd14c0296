"""Stops calls that take too long or that are cancelled.

First the call gets an exception, which it may catch to clean up. If it has not ended after its grace, its child is
killed.
"""

from __future__ import annotations

from dataclasses import dataclass

from agentq.coordinator.clock import monotonic_ms
from agentq.coordinator.model.lifecycle import OutcomeClass
from agentq.worker.functions import protocol
from agentq.worker.functions.child_process import CallKey, ChildProcess


@dataclass(slots=True)
class PendingStop:
    """One call, and when to interrupt it and to kill its child; None for what is done or not planned."""

    child: ChildProcess
    class_: OutcomeClass
    """The outcome class if it is stopped."""
    reason: str
    grace_ms: int
    timeout_at_ms: int | None = None
    """When its timeout expires,"""
    silence_at_ms: int | None = None
    """and when its silence timeout expires,"""
    silence_ms: int = 0
    """which is this long."""
    kill_at_ms: int | None = None
    """When its child is killed, once it was interrupted."""
    released: bool = False
    """It is handed back, to run elsewhere."""

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
    """The limits and stops of current calls. Not thread-safe; the engine holds the lock."""

    def __init__(self) -> None:
        self._stops: dict[CallKey, PendingStop] = {}

    def __bool__(self) -> bool:
        return bool(self._stops)

    def limit(self, child: ChildProcess, key: CallKey, timeout_ms: int, silence_ms: int, grace_ms: int) -> None:
        """A call has begun with these limits; 0 is no limit."""
        now = monotonic_ms()
        stop = PendingStop(child, OutcomeClass.TIMEOUT, f"ran longer than {timeout_ms} ms", grace_ms)
        stop.timeout_at_ms = now + timeout_ms if timeout_ms else None
        stop.silence_at_ms = now + silence_ms if silence_ms else None
        stop.silence_ms = silence_ms
        self._stops.setdefault(key, stop)

    def reset_silence(self, key: CallKey) -> None:
        """The call has written something."""
        stop = self._stops.get(key)
        if stop is not None and stop.silence_at_ms is not None:
            stop.silence_at_ms = monotonic_ms() + stop.silence_ms

    def stop(self, child: ChildProcess, key: CallKey, reason: str, grace_ms: int, *, released: bool = False) -> None:
        """Stop a call now. The first order counts, but the shorter grace."""
        now = monotonic_ms()
        known = self._stops.get(key)
        if known is not None and known.kill_at_ms is not None:
            known.kill_at_ms = min(known.kill_at_ms, now + grace_ms)
            return
        stop = self._stops[key] = PendingStop(child, OutcomeClass.CANCELLED, reason, grace_ms, released=released)
        stop.interrupt(key, protocol.UNWANTED_STOP, now)

    def forget(self, key: CallKey) -> PendingStop | None:
        """The call has ended."""
        return self._stops.pop(key, None) if self._stops else None

    def run_due(self, now: int) -> None:
        """Interrupt and kill what is due."""
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
        """When the next step is due."""
        return min((stop.due_ms() for stop in self._stops.values()), default=None)
