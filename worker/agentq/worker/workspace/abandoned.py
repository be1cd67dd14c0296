"""Locks of git's that nobody holds any more: of a git that was killed in the moment in which it moved a branch.

Git never takes such a lock away, so it would stand in the way for ever. It holds one for the blink of an eye: what is
much older, and open in no process of this user's, was left behind. But for that of an index: git holds it, not open,
for as long as somebody writes a message.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from agentq.coordinator.clock import wall_ms

OLD_MS = 20_000
_TOLD = re.compile(r"Unable to create '(.+\.lock)': File exists|could not lock config file (.+): File exists")


def clear_away(said: str, folder: Path) -> None:
    """Remove the locks that git, which stood in the folder, says are in its way, as far as they were left behind."""
    for lock, settings in _TOLD.findall(said):
        path = folder / (lock or f"{settings}.lock")
        if path.name != "index.lock" and _is_gits(path):
            removed(path)


def _is_gits(lock: Path) -> bool:
    """Whether it is in a repository's git directory: a remote, or a name in the tree, could say what git says."""
    folder = lock.parent.resolve()
    return any(
        (each / "HEAD").is_file() and ((each / "objects").is_dir() or (each / "commondir").is_file())
        for each in (folder, *folder.parents)
    )


def removed(lock: Path) -> bool:
    """Remove a lock that was left behind; whether it was."""
    with suppress(OSError):
        if not _is_old(lock.lstat()):
            return False
        held = set(_open_files())
        now = lock.lstat()  # by now it may be another's
        if not _is_old(now) or (now.st_dev, now.st_ino) in held:
            return False
        lock.unlink()
        return True
    return False


def _is_old(status: os.stat_result) -> bool:
    return wall_ms() - status.st_mtime_ns // 1_000_000 >= OLD_MS


def _open_files() -> Iterator[tuple[int, int]]:
    """What the processes have open that we may look at."""
    for process in Path("/proc").glob("[0-9]*/fd"):
        with suppress(OSError), os.scandir(process) as entries:
            for entry in list(entries):
                with suppress(OSError):
                    status = entry.stat()
                    yield status.st_dev, status.st_ino
