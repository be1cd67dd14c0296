"""What runs leave in the worker's folder, and when it goes: log files, and channels of workers that were killed."""

from __future__ import annotations

import shutil
from pathlib import Path

from agentq.coordinator.clock import wall_ms
from agentq.coordinator.limits import KEEP_MS

HOUSEKEEPING_MS = 3_600_000


def tidy_home(home: Path) -> int:
    """Remove the folders that nobody has written to for as long as an ended run is kept; how many there were."""
    oldest_ms = wall_ms() - KEEP_MS
    stale = [
        folder for kind in ("logs", "channels") for folder in (home / kind).glob("*") if _written_ms(folder) < oldest_ms
    ]
    for folder in stale:
        shutil.rmtree(folder, ignore_errors=True)
    return len(stale)


def _written_ms(folder: Path) -> int:
    """When anything in a folder was last written."""
    times = [folder.stat().st_mtime_ns, *(file.stat().st_mtime_ns for file in folder.glob("*"))]
    return max(times) // 1_000_000
