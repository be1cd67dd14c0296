"""Wakes streams when a log grows: one reader thread per partition serves all followed logs.

A client reads the log, and then watches it from its position; a watch is woken once.
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
    """The followed logs of this process. Use it on the server's loop only."""

    def __init__(self, store: NamespaceStore) -> None:
        self.store = store
        self._readers: dict[int, _LogReader] = {}

    def watch(self, run_id: str, position: str) -> Wakeup:
        """A future that is done when the log has grown past this position, or after an outage. Cancel it to stop
        watching."""
        loop = asyncio.get_running_loop()
        partition = partition_of(run_id)
        if partition not in self._readers:
            self._readers[partition] = _LogReader(self.store.connection.another(), loop)
        wakeup: Wakeup = loop.create_future()
        self._readers[partition].add(self.store.key(partition, "log", run_id), position, wakeup)
        return wakeup

    def stop(self) -> None:
        """Stop the readers. Blocks, so do not call it on the loop."""
        for reader in self._readers.values():
            reader.stop()


class _LogReader(threading.Thread):
    """Watches the logs of one partition; sleeps while none is followed."""

    def __init__(self, connection: Connection, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(name="agentq-log-reader", daemon=True)
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
                # The woken streams read the log themselves, and get the error or the new entries.
                self._wake_watchers(list(positions))
                threading.Event().wait(random.uniform(0, OUTAGE_PAUSE_MS) / 1000)
            else:
                self._wake_watchers([key for key, _ in reply or ()])
        self._connection.close()

    def _read_positions(self) -> dict[str, str]:
        """The logs to watch, each from its first watched position; drops cancelled watches."""
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
        # On a closed loop there are no waits.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(_wake_all, wakeups)


def _wake_all(wakeups: list[Wakeup]) -> None:
    for wakeup in wakeups:
        if not wakeup.done():
            wakeup.set_result(None)
