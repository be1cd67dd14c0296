"""Which logs were written to: one reader for each partition looks at every log that somebody waits for.

It only rings: whoever waits reads for itself, from where it is. The order of things makes that safe: when a log is
added its watch is rung once, after the place was noted from which on the log is looked at.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from agentq.coordinator.clock import monotonic_ms
from agentq.coordinator.connection import Connection, Word
from agentq.coordinator.errors import AgentqError
from agentq.coordinator.events import BEGINNING
from agentq.coordinator.identity import partition_of
from agentq.coordinator.server.tides import FOLLOW_MS, OUTAGE_MS, Watch
from agentq.coordinator.store import Store

LINGER_MS = 15_000
"""How long a log is looked at after the last has left: who polls comes back at once."""


class Currents:
    """All logs that are waited for in this process. To be used on its loop alone."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._readers: dict[int, _Reader] = {}

    @contextmanager
    def ring(self, run_id: str, watch: Watch) -> Iterator[None]:
        """Ring a watch whenever the log of a run was written to, and once now."""
        partition = partition_of(run_id)
        reader = self._readers.get(partition)
        if reader is None:
            reader = self._readers[partition] = _Reader(self.store, partition, asyncio.get_running_loop())
            reader.start()
        reader.enter(run_id, watch)
        try:
            yield
        finally:
            reader.leave(run_id, watch)

    def stop(self) -> None:
        """End the readers. It waits for them, so not on the loop."""
        for reader in self._readers.values():
            reader.stop()


class _Reader(threading.Thread):
    """Looks at the logs of one partition."""

    def __init__(self, store: Store, partition: int, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(name=f"agentq-currents-{partition}", daemon=True)
        self._store = store
        self._partition = partition
        self._loop = loop
        self._connection: Connection = store.connection.another()
        self._lock = threading.Lock()
        self._watches: dict[str, list[Watch]] = {}
        self._left_at_ms: dict[str, int] = {}
        self._places: dict[str, str] = {}
        """Of the thread alone: from where on each log is looked at."""
        self._wanted = threading.Event()
        self._stopped = threading.Event()

    def enter(self, run_id: str, watch: Watch) -> None:
        with self._lock:
            self._watches.setdefault(run_id, []).append(watch)
            is_new = run_id not in self._left_at_ms
            self._left_at_ms.pop(run_id, None)
        self._wanted.set()
        if is_new:
            self._connection.unblock()

    def leave(self, run_id: str, watch: Watch) -> None:
        with self._lock:
            watches = self._watches[run_id]
            watches.remove(watch)
            if not watches:
                self._left_at_ms[run_id] = monotonic_ms()

    def stop(self) -> None:
        self._stopped.set()
        self._wanted.set()
        self._connection.unblock()
        self.join()

    def run(self) -> None:
        while not self._stopped.is_set():
            try:
                if self._look_at():
                    self._read()
                else:
                    self._wanted.clear()
                    self._wanted.wait(FOLLOW_MS / 1000)
            except AgentqError:
                # What was written meanwhile is not known: all look for themselves when the server is back.
                self._places.clear()
                self._stopped.wait(random.uniform(0, OUTAGE_MS / 1000))
        self._connection.close()

    def _look_at(self) -> bool:
        """Note the place of each log that is new; whether there is any to look at."""
        now_ms = monotonic_ms()
        with self._lock:
            for run_id in [each for each, left in self._left_at_ms.items() if now_ms - left > LINGER_MS]:
                del self._left_at_ms[run_id], self._watches[run_id]
            wanted = list(self._watches)
        self._places = {run_id: self._places.get(run_id, "") for run_id in wanted}
        for run_id in [run_id for run_id, place in self._places.items() if not place]:
            self._places[run_id] = self._newest(run_id)
            self._ring(run_id)
        return bool(wanted)

    def _read(self) -> None:
        keys = {self._key(run_id): run_id for run_id in self._places}
        words: tuple[Word, ...] = ("XREAD", "COUNT", 1, "BLOCK", FOLLOW_MS, "STREAMS", *keys, *self._places.values())
        for key, _ in self._connection.block(*words, timeout_ms=FOLLOW_MS) or ():
            run_id = keys[key]
            # All that is there by now is told by one ring.
            self._places[run_id] = self._newest(run_id)
            self._ring(run_id)

    def _newest(self, run_id: str) -> str:
        newest = self._store.connection.command("XREVRANGE", self._key(run_id), "+", "-", "COUNT", 1)
        return str(newest[0][0]) if newest else BEGINNING

    def _ring(self, run_id: str) -> None:
        with self._lock:
            watches = list(self._watches.get(run_id, ()))
        for watch in watches:
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(watch.ring)

    def _key(self, run_id: str) -> str:
        return self._store.key(self._partition, "log", run_id)
