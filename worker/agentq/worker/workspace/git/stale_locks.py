"""Removes stale git locks, left by a git that was killed while it moved a branch.

Git never removes such a lock, so it would block for ever. A lock is usually held for milliseconds: one that is much
older, open in no process of this user, and older than every live git of this user, is stale. The lock of an index is
never removed, because git holds it as long as a person writes a message.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from agentq.coordinator.clock import wall_ms
from agentq.worker.process import procfs

STALE_LOCK_MS = 20_000
CLOCK_SLACK_MS = 2_000
"""How inexact the ages of a file and a process may be."""
_LOCK_ERROR = re.compile(
    r"^(?!remote|fatal: remote).*(?:Unable to create '(.+\.lock)'|lock config file (.+)): File exists", re.M
)
_REMOVABLE_LOCK = re.compile(r"(HEAD|packed-refs|config|refs/.+|worktrees/[^/]+/(HEAD|config\.worktree|refs/.+))\.lock")
"""Locks that are removed, in the git directory that the worktrees of a repository share."""


def remove_stale_locks(stderr: str, folder: Path, git_dir: Path | None) -> None:
    """Remove stale locks that git named in its error, if they belong to its own repository.

    Git ran in the folder. Without a git directory given, the folder is one or contains one; a `.git` file could lie.
    """
    with suppress(OSError, ValueError, RuntimeError):
        common = _find_common_dir(git_dir or (folder / ".git" if (folder / ".git").is_dir() else folder))
        for lock, settings in _LOCK_ERROR.findall(stderr):
            path = folder / (lock or f"{settings}.lock")
            path = path.parent.resolve() / path.name
            if path.is_relative_to(common) and _REMOVABLE_LOCK.fullmatch(str(path.relative_to(common))):
                remove_stale_lock(path)


def _find_common_dir(git_dir: Path) -> Path:
    """The git directory that all worktrees share."""
    shared = git_dir / "commondir"
    return (git_dir / shared.read_text().strip() if shared.is_file() else git_dir).resolve()


def remove_stale_lock(lock: Path) -> bool:
    """Remove a lock if it is stale; returns whether it did."""
    with suppress(OSError):
        if _age_ms(lock.lstat()) < STALE_LOCK_MS:
            return False
        held = set(_list_open_files())
        now = lock.lstat()  # by now it may be another's
        age_ms = _age_ms(now)
        if age_ms < STALE_LOCK_MS or (now.st_dev, now.st_ino) in held or _may_be_in_use(age_ms):
            return False
        lock.unlink()
        return True
    return False


def _age_ms(status: os.stat_result) -> int:
    return wall_ms() - status.st_mtime_ns // 1_000_000


def _may_be_in_use(age_ms: int) -> bool:
    """Git closes the lock file of a branch once written, and holds the lock until everything else is done."""
    everything = list(procfs.list_own_processes())
    if not everything:
        return True  # unknown, as on macOS
    up_ms, tick_ms = time.clock_gettime(time.CLOCK_BOOTTIME) * 1000, 1000 / os.sysconf("SC_CLK_TCK")
    for one in everything:
        if one.alive and up_ms - one.began * tick_ms >= age_ms - CLOCK_SLACK_MS:
            words = procfs.read_command_line(one.pid)
            if words and Path(os.fsdecode(words[0])).name == "git" and not any(b"daemon" in word for word in words):
                return True
    return False


def _list_open_files() -> Iterator[tuple[int, int]]:
    """The open files of all processes that this user may inspect."""
    for process in Path("/proc").glob("[0-9]*/fd"):
        with suppress(OSError), os.scandir(process) as entries:
            for entry in list(entries):
                with suppress(OSError):
                    status = entry.stat()
                    yield status.st_dev, status.st_ino
