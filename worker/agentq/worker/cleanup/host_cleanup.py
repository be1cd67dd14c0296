"""Cleans up a worker's host: ends what killed workers and ended children left, and removes old data in its home.

That data: logs, worktrees, channels of killed workers, unsent reports, and notes of workers from before a reboot.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from agentq.coordinator.bounds import KEEP_MS
from agentq.coordinator.clock import monotonic_ms, wall_ms
from agentq.worker.cleanup.takeover import remove_old_notes
from agentq.worker.options import WorkerOptions
from agentq.worker.process.process_tree import Cgroups, ProcessTree, end_dead_trees, end_tree

SWEEP_INTERVAL_MS = 30_000
CLEANUP_INTERVAL_MS = 3_600_000


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


def clean_home(home: Path, options: WorkerOptions) -> list[str]:
    """Remove everything that is too old or too large; returns what happened to worktrees."""
    remove_old_folders(home)
    if not (home / "worktrees").is_dir():
        return []
    from agentq.worker.workspace.worktree.retention import (  # which most workers never need
        RetentionPolicy,
        apply_retention,
    )

    return apply_retention(home, RetentionPolicy(options.worktree_keep_ms, options.worktree_disk))


def remove_old_folders(home: Path) -> int:
    """Remove folders not written to for as long as an ended run is kept; returns their number."""
    oldest_ms = wall_ms() - KEEP_MS
    stale = [
        folder
        for kind in ("logs", "channels", "unreported")
        for folder in (home / kind).glob("*")
        if _get_last_written_ms(folder) < oldest_ms
    ]
    for folder in stale:
        shutil.rmtree(folder, ignore_errors=True)
    remove_old_notes(home, oldest_ms)
    return len(stale)


def _get_last_written_ms(folder: Path) -> int:
    """When anything in a folder was last written."""
    times = [folder.stat().st_mtime_ns, *(file.stat().st_mtime_ns for file in folder.glob("*"))]
    return max(times) // 1_000_000
