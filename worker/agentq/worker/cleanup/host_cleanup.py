"""Cleans up a worker's host: after killed workers, after ended children, and in its own home."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from agentq.coordinator.clock import monotonic_ms
from agentq.worker.cleanup.home_folder import CLEANUP_INTERVAL_MS
from agentq.worker.process.process_tree import Cgroups, ProcessTree, end_dead_trees, end_tree

SWEEP_INTERVAL_MS = 30_000


class HostCleanup:
    """Lives on the worker's event loop; calls `clean_home` in a thread."""

    def __init__(self, namespace: str, cgroups: Cgroups | None, clean_home: Callable[[], object]) -> None:
        self._namespace = namespace
        self._cgroups = cgroups
        self._clean_home = clean_home
        self._worker_lost = asyncio.Event()
        self._kills: set[asyncio.Future[int]] = set()

    async def sweep(self) -> None:
        """End what killed workers left on this host."""
        await end_dead_trees(self._namespace, cgroups=self._cgroups)

    async def run(self) -> None:
        """Sweep whenever a worker was declared lost, and every 30 s: another worker's reaper may have found it."""
        tidy_at_ms = 0
        while True:
            if monotonic_ms() >= tidy_at_ms:
                await asyncio.to_thread(self._clean_home)
                tidy_at_ms = monotonic_ms() + CLEANUP_INTERVAL_MS
            self._worker_lost.clear()
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._worker_lost.wait(), SWEEP_INTERVAL_MS / 1000)
            await self.sweep()

    def on_worker_lost(self, _: str) -> None:
        """A worker was declared lost."""
        self._worker_lost.set()

    def end_tree(self, tree: ProcessTree) -> None:
        """End what an ended child of the function engine left."""
        self._kills = {each for each in self._kills if not each.done()}
        self._kills.add(asyncio.ensure_future(end_tree(tree)))
