"""Removes old data in the worker's home: logs, worktrees, channels of killed workers, unsent reports, and notes of
workers from before a reboot.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from agentq.coordinator.bounds import KEEP_MS
from agentq.coordinator.clock import wall_ms
from agentq.worker.cleanup.takeover import remove_old_notes
from agentq.worker.options import WorkerOptions

CLEANUP_INTERVAL_MS = 3_600_000


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
