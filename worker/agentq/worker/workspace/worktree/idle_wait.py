"""Worktrees that are becoming idle: a run that needs one waits for them briefly before a new one is made.

A run's final report is sent before its worktree is released; so the next run often starts before the worktree is idle.
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
"""Making a worktree with very many files takes longer."""
IDLE_POLL_S = 0.2

_idle_changed = threading.Condition()
_closing_count: Counter[Path] = Counter()
"""How many worktrees of a folder this process is releasing."""


@contextmanager
def mark_becoming_idle(folder: Path) -> Iterator[None]:
    """Held while a worktree is released."""
    with _idle_changed:
        _closing_count[folder] += 1
    try:
        yield
    finally:
        with _idle_changed:
            _closing_count[folder] -= 1
            _idle_changed.notify_all()


def wait_for_idle(folder: Path, cancellation: GitCancellation, began_ms: int) -> bool:
    """Wait until one becomes idle; False if none is being released, or at the timeout."""
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
