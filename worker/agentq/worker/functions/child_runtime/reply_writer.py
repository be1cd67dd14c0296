"""Sends records from a child to its worker: into the ring, and a notification on the socket that says how far it is
written.

The worker is notified once for many outcomes, or when the child is idle. It also checks the ring every few milliseconds
while calls run.
"""

from __future__ import annotations

import socket
import threading

from agentq.worker.functions import protocol
from agentq.worker.functions.shared_memory import RING_HEAD, SharedMemory


class ReplyWriter:
    """Writes records to the worker. Thread-safe."""

    def __init__(self, end: socket.socket, memory: SharedMemory) -> None:
        self._socket = end
        self._memory = memory
        self._lock = threading.Lock()
        self._notified_head = 0

    def put(self, record: bytes) -> None:
        """Write a record; the worker reads it soon."""
        with self._lock:
            if not self._memory.put(record):
                # The ring is full: sending on the socket blocks until the worker has read.
                self._notified_head = self._memory.numbers[RING_HEAD]
                self._socket.sendall(protocol.RECORD_HEADER.pack(self._notified_head, len(record)) + record)

    def notify(self) -> None:
        """Have the worker read the ring now."""
        with self._lock:
            head = self._memory.numbers[RING_HEAD]
            if head != self._notified_head:
                self._notified_head = head
                self._socket.sendall(protocol.RECORD_HEADER.pack(head, 0))

    def send(self, record: bytes) -> None:
        self.put(record)
        self.notify()
