"""RQ's list as an inbox: a thread for each queue, which takes jobs into the lane as fast as workers can have them.

An empty list is waited for in one blocking command that moves its next job to a list of ours, from where the script
takes it in. Whenever a process dies, each job is in one of RQ's list, ours, and the lane; what is in ours is taken in
by whoever looks next, which is every few seconds even where nothing comes. One push wakes one worker.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

from agentq.coordinator.errors import AgentqError, TryLater, Unreachable
from agentq.worker.rq.rq_lanes import RqLanes
from agentq.worker.worker_thread import WorkerThread

BLOCK_S = 10
ROOM_WAIT_MS = 250
"""How long to wait for room at the most; who claims a job says that there is some."""
FULL_WAIT_MS = 20
"""The same, while the worker has as many in hand as it may have, of which one ends without a word to us."""
RETRY_MS = 1_000


class RqInbox:
    """Keeps the lane of one queue filled while there is anything in RQ's list."""

    def __init__(
        self, lanes: RqLanes, room: Callable[[], int], on_failure: Callable[[AgentqError], None] = lambda _: None
    ) -> None:
        self.lanes = lanes
        self.room = room
        """How many jobs may wait in the lane; none while this worker would leave them there."""
        self._on_failure = on_failure
        self._reader = lanes.store.connection.another()
        self._closed = threading.Event()
        self._start_lock = threading.Lock()
        """An order to end may come while the worker still begins."""
        self._wake = threading.Event()
        self._thread = WorkerThread(self._run, f"agentq-rq-{lanes.rq_queue}", self._on_failure)

    def start(self) -> None:
        with self._start_lock:
            if not self._closed.is_set():
                self._thread.start()

    def close(self) -> None:
        """Take nothing more, and return when nothing more can come."""
        with self._start_lock:
            if self._closed.is_set():
                return
            self._closed.set()
        self._wake.set()
        self._reader.unblock()
        if self._thread.ident is not None:
            self._thread.join()
        self._reader.close()

    def wake(self) -> None:
        """There may be room: a job was claimed or has ended."""
        self._wake.set()

    def _run(self) -> None:
        while not self._closed.is_set():
            try:
                self._take_in()
            except (Unreachable, TryLater):
                self._pause(random.uniform(RETRY_MS / 10, RETRY_MS))
            except AgentqError as error:
                self._on_failure(error)
                return

    def _take_in(self) -> None:
        room = self.room()
        if room <= 0:
            self._pause(FULL_WAIT_MS)
            return
        taken, more = self.lanes.take_in(room)
        if more and not taken:
            self._pause(ROOM_WAIT_MS)
        elif not more and not self._closed.is_set():
            source, arrived = self.lanes.source, self.lanes.arrived
            self._reader.block("BLMOVE", source, arrived, "LEFT", "RIGHT", BLOCK_S, timeout_ms=BLOCK_S * 1000)

    def _pause(self, pause_ms: float) -> None:
        self._wake.wait(pause_ms / 1000)
        if not self._closed.is_set():
            self._wake.clear()
