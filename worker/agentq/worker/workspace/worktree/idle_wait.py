"""Worktrees that are about to be idle: whoever needs one waits for them a moment, before a new one is made.

A run's last word is said before its worktree is put away, so that nobody waits for that; the next run is then mostly
there before the worktree is.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agentq.coordinator.clock import monotonic_ms
from agentq.worker.workspace.git.git_command import GitCancellation

IDLE_WAIT_MS = 2_000
"""To make a worktree of very many files takes longer."""
IDLE_POLL_S = 0.2

_idle_changed = threading.Condition()
_closing_count: Counter[Path] = Counter()
"""How many of a folder are being put away by this process."""


@contextmanager
def mark_becoming_idle(folder: Path) -> Iterator[None]:
    """While one is put away."""
    with _idle_changed:
        _closing_count[folder] += 1
    try:
        yield
    finally:
        with _idle_changed:
            _closing_count[folder] -= 1
            _idle_changed.notify_all()


def wait_for_idle(folder: Path, cancellation: GitCancellation, began_ms: int) -> bool:
    """Wait until one has been put away, of those that are; False if there is none, or it takes too long."""
    with _idle_changed:
        before = _closing_count[folder]
        if not before:
            return False
        while _closing_count[folder] >= before:
            cancellation.check()
            if monotonic_ms() - began_ms >= IDLE_WAIT_MS:
                return False
            _idle_changed.wait(IDLE_POLL_S)
        return True
