"""Waiting for logs to grow, without threads: one reader for each partition serves all who follow one.

Whoever follows a log reads what there is, and then asks to be rung when there is more after its place; it is rung once.
"""

from __future__ import annotations

import asyncio
import random
import threading
from contextlib import suppress

from agentq.coordinator.errors import AgentqError
from agentq.coordinator.events.stream import event_sort_key
from agentq.coordinator.model.ids import partition_of
from agentq.coordinator.storage.connection import CommandArgument, Connection
from agentq.coordinator.storage.store import NamespaceStore

BLOCK_MS = 5_000
OUTAGE_PAUSE_MS = 1_000

Wakeup = asyncio.Future[None]


class LogHub:
    """The logs that are followed in this process. To be used on its loop alone."""

    def __init__(self, store: NamespaceStore) -> None:
        self.store = store
        self._readers: dict[int, _LogReader] = {}

    def watch(self, run_id: str, position: str) -> Wakeup:
        """What is rung when there is more of a log than up to this place, or after an outage. Cancel it to leave."""
        loop = asyncio.get_running_loop()
        partition = partition_of(run_id)
        if partition not in self._readers:
            self._readers[partition] = _LogReader(self.store.connection.another(), loop)
        wakeup: Wakeup = loop.create_future()
        self._readers[partition].add(self.store.key(partition, "log", run_id), position, wakeup)
        return wakeup

    def stop(self) -> None:
        """End the readers. It waits for them, so not on the loop."""
        for reader in self._readers.values():
            reader.stop()


class _LogReader(threading.Thread):
    """Looks at the logs of one partition. It sleeps while nobody follows one."""

    def __init__(self, connection: Connection, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(name="agentq-currents", daemon=True)
        self._connection = connection
        self._loop = loop
        self._lock = threading.Lock()
        self._wakeups: dict[str, list[tuple[str, Wakeup]]] = {}
        self._has_watchers = threading.Event()
        self._stopped = False
        self.start()

    def add(self, key: str, position: str, wakeup: Wakeup) -> None:
        with self._lock:
            self._wakeups.setdefault(key, []).append((position, wakeup))
        self._has_watchers.set()
        self._connection.unblock()

    def stop(self) -> None:
        self._stopped = True
        self._has_watchers.set()
        self._connection.unblock()
        self.join()

    def run(self) -> None:
        while not self._stopped:
            self._has_watchers.wait()
            positions = self._read_positions()
            try:
                command: tuple[CommandArgument, ...] = (
                    "XREAD",
                    "COUNT",
                    1,
                    "BLOCK",
                    BLOCK_MS,
                    "STREAMS",
                    *positions,
                    *positions.values(),
                )
                reply = self._connection.block(*command, timeout_ms=BLOCK_MS) if positions else None
            except AgentqError:
                # Whoever waits looks for itself, and meets the same fault, or more of the log.
                self._wake_watchers(list(positions))
                threading.Event().wait(random.uniform(0, OUTAGE_PAUSE_MS) / 1000)
            else:
                self._wake_watchers([key for key, _ in reply or ()])
        self._connection.close()

    def _read_positions(self) -> dict[str, str]:
        """What to look at, each after the first place that somebody is at; those who have left are dropped."""
        with self._lock:
            left = {key: [each for each in bells if not each[1].done()] for key, bells in self._wakeups.items()}
            self._wakeups = {key: bells for key, bells in left.items() if bells}
            if not self._wakeups and not self._stopped:
                self._has_watchers.clear()
            return {
                key: min((position for position, _ in bells), key=event_sort_key)
                for key, bells in self._wakeups.items()
            }

    def _wake_watchers(self, keys: list[str]) -> None:
        with self._lock:
            wakeups = [bell for key in keys for _, bell in self._wakeups.pop(key, [])]
        # A loop that is closed has nobody in it who waits.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(_wake_all, wakeups)


def _wake_all(wakeups: list[Wakeup]) -> None:
    for wakeup in wakeups:
        if not wakeup.done():
            wakeup.set_result(None)
