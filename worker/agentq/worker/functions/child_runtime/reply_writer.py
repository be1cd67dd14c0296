"""How a child speaks to its worker: records into the ring, and a bell on the socket that says how far it is written.

Records of outcomes are not worth a bell each: it is rung for many of them, or when there is nothing else to do, and the
worker looks at the ring by itself every few milliseconds while it has something to expect.
"""

from __future__ import annotations

import socket
import threading

from agentq.worker.functions import protocol
from agentq.worker.functions.shared_memory import RING_HEAD, SharedMemory


class ReplyWriter:
    """The child's mouth. Any of its threads may use it."""

    def __init__(self, end: socket.socket, memory: SharedMemory) -> None:
        self._socket = end
        self._memory = memory
        self._lock = threading.Lock()
        self._notified_head = 0

    def put(self, record: bytes) -> None:
        """Say something, to be heard soon."""
        with self._lock:
            if not self._memory.put(record):
                # Where the ring is full, the socket makes us wait for the worker.
                self._notified_head = self._memory.numbers[RING_HEAD]
                self._socket.sendall(protocol.RECORD_HEADER.pack(self._notified_head, len(record)) + record)

    def notify(self) -> None:
        """Have the worker hear now what was said."""
        with self._lock:
            head = self._memory.numbers[RING_HEAD]
            if head != self._notified_head:
                self._notified_head = head
                self._socket.sendall(protocol.RECORD_HEADER.pack(head, 0))

    def send(self, record: bytes) -> None:
        self.put(record)
        self.notify()
