"""Locks of git's that nobody holds any more: of a git that was killed in the moment in which it moved a branch.

Git never takes such a lock away, so it would stand in the way for ever. It holds one for the blink of an eye: what is
much older, and open in no process of this user's, was left behind.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from agentq.coordinator.clock import wall_ms

OLD_MS = 20_000


def removed(lock: Path) -> bool:
    """Remove a lock that was left behind; whether it was."""
    with suppress(OSError):
        now = lock.lstat()
        is_old = wall_ms() - now.st_mtime_ns // 1_000_000 >= OLD_MS
        if not is_old or (now.st_dev, now.st_ino) in _open_files():
            return False
        lock.unlink()
        return True
    return False


def _open_files() -> Iterator[tuple[int, int]]:
    """What the processes have open that we may look at."""
    for process in Path("/proc").glob("[0-9]*/fd"):
        with suppress(OSError), os.scandir(process) as entries:
            for entry in list(entries):
                with suppress(OSError):
                    status = entry.stat()
                    yield status.st_dev, status.st_ino
