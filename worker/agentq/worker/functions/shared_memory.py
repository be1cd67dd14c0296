"""Memory shared by a worker and one of its children: a few numbers, and a ring buffer of the child's records.

Its content outlives the child, however that dies. So the worker knows which call had begun, has every outcome of calls
that had ended, and can withdraw calls that have not begun without asking a child that may be busy for hours.

The calls of a child are numbered in the order in which they are sent, and begin in that order. Before it begins one,
the child writes its number to CURRENT_CALL, and then checks whether it is withdrawn: not less than WITHDRAWN_FROM, less
than WITHDRAWN_TO. The worker writes those, and reads CURRENT_CALL a moment later: calls above that will never begin.
"""

from __future__ import annotations

import mmap
import os
import tempfile

CURRENT_CALL = 0
"""The call begun last. Written by the child, as RING_HEAD is; the others by the worker."""
RING_HEAD = 8
"""How many bytes were ever written to the ring,"""
RING_TAIL = 16
"""and read. Numbers written by different processes have cache lines of their own."""
WITHDRAWN_FROM = 24
WITHDRAWN_TO = 25
INTERRUPTED_CALL = 26
"""The call that is to be stopped by an exception,"""
INTERRUPT_REASON = 27
"""and which one."""

NUMBERS_BYTES = 4096
RING_BYTES = 256 << 10
MEMORY_BYTES = NUMBERS_BYTES + RING_BYTES


class SharedMemoryCorrupt(Exception):
    """The ring is invalid: the child has written into memory that it does not own."""


def create_memory() -> int:
    """A descriptor of new shared memory."""
    if hasattr(os, "memfd_create"):
        end = os.memfd_create("agentq-board")
    else:
        end, path = tempfile.mkstemp(prefix="agentq-board")
        os.unlink(path)
    os.ftruncate(end, MEMORY_BYTES)
    return end


class SharedMemory:
    """Either side's view of the shared memory."""

    def __init__(self, end: int) -> None:
        self._memory = mmap.mmap(end, MEMORY_BYTES)
        self._all = memoryview(self._memory)
        self.numbers = self._all[:NUMBERS_BYTES].cast("Q")
        self._ring = self._all[NUMBERS_BYTES:]
        self._settled = 0

    # ---- the child

    def put(self, text: bytes) -> bool:
        """Write to the ring; False if there is no room now."""
        numbers, size = self.numbers, len(text)
        head = numbers[RING_HEAD]
        if size > RING_BYTES - (head - numbers[RING_TAIL]):
            return False
        at = head % RING_BYTES
        end = at + size
        if end <= RING_BYTES:
            self._ring[at:end] = text
        else:
            self._ring[at:] = text[: RING_BYTES - at]
            self._ring[: end - RING_BYTES] = text[RING_BYTES - at :]
        numbers[RING_HEAD] = head + size
        return True

    # ---- the worker

    def settled_head(self) -> int:
        """How far the ring can be read without a notification: as far as it was written at the last check.

        Another processor may see the new number before the bytes that it stands for, but less than a millisecond
        before.
        """
        seen, self._settled = self._settled, self.numbers[RING_HEAD]
        return seen

    def take(self, head: int) -> bytes:
        """What was written up to `head` since the last read."""
        tail = self.numbers[RING_TAIL]
        size = head - tail
        if size <= 0:
            return b""
        if size > RING_BYTES:
            raise SharedMemoryCorrupt()
        at = tail % RING_BYTES
        end = at + size
        if end <= RING_BYTES:
            text = bytes(self._ring[at:end])
        else:
            text = bytes(self._ring[at:]) + bytes(self._ring[: end - RING_BYTES])
        self.numbers[RING_TAIL] = head
        return text

    def close(self) -> None:
        self.numbers.release()
        self._ring.release()
        self._all.release()
        self._memory.close()
