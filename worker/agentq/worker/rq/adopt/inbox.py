"""Moves jobs from RQ's list into the lane, in a thread for each queue, as fast as workers can take them.

An empty list is awaited by one blocking command that moves its next job to a list of agentq, from where a script takes
it into the lane. Whenever a process dies, each job is in RQ's list, in agentq's, or in the lane; jobs in agentq's list
are taken in by the next worker that checks, every few seconds even without new jobs. One push wakes one worker.
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
"""How long to wait for room at most; the thread that claims a job wakes this one."""
FULL_WAIT_MS = 20
"""The same while the worker holds its maximum, of which one may end without a wake-up."""
RETRY_MS = 1_000


class RqInbox:
    """Keeps the lane of one queue filled while RQ's list has jobs."""

    def __init__(
        self, lanes: RqLanes, room: Callable[[], int], on_failure: Callable[[AgentqError], None] = lambda _: None
    ) -> None:
        self.lanes = lanes
        self.room = room
        """How many jobs may wait in the lane; none while this worker would not take them."""
        self._on_failure = on_failure
        self._reader = lanes.store.connection.another()
        self._closed = threading.Event()
        self._start_lock = threading.Lock()
        """An order to stop may arrive while the worker is starting."""
        self._wake = threading.Event()
        self._thread = WorkerThread(self._run, f"agentq-rq-{lanes.rq_queue}", self._on_failure)

    def start(self) -> None:
        with self._start_lock:
            if not self._closed.is_set():
                self._thread.start()

    def close(self) -> None:
        """Take in nothing more; returns when nothing more can arrive."""
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
