"""Stops a synchronous call from outside: a signal raises an exception in it.

The worker writes to shared memory which call it means and why, and then sends the signal. A signal that arrives when
another call is executing does nothing. It interrupts a call only while the function itself executes: not in agentq's
code before and after, and not during a message to the worker, which must stay complete.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from agentq.sdk.errors import Cancelled, SoftTimeout
from agentq.worker.functions import protocol
from agentq.worker.functions.shared_memory import INTERRUPT_REASON, INTERRUPTED_CALL, SharedMemory


def create_interrupt(why: int) -> BaseException:
    """The exception to raise in a call that is to stop."""
    if why == protocol.LATE_STOP:
        return SoftTimeout("the time of this run is over")
    return Cancelled("this run is to stop")


class Interrupts:
    """Lives in the main thread, where signals are handled."""

    def __init__(self, memory: SharedMemory) -> None:
        self._numbers = memory.numbers
        self._main = threading.get_ident()
        self.executing = 0
        """The synchronous call whose function executes now."""
        self._interrupted = 0
        self._shields = 0
        self._due = False
        signal.signal(protocol.INTERRUPT_SIGNAL, self._handle)

    def reason(self, number: int) -> int:
        """Why this call is to stop; 0 if it is not."""
        return self._numbers[INTERRUPT_REASON] if self._numbers[INTERRUPTED_CALL] == number else 0

    @contextmanager
    def shield(self) -> Iterator[None]:
        """Delays an exception to the end of the block."""
        if threading.get_ident() != self._main:
            yield
            return
        self._shields += 1
        try:
            yield
        finally:
            self._shields -= 1
        if self._due and not self._shields:
            self._handle()

    def _handle(self, *_: object) -> None:
        number = self.executing
        self._due = False
        if number and self._interrupted != number and (why := self.reason(number)):
            if self._shields:
                self._due = True
                return
            self._interrupted = number
            raise create_interrupt(why)
