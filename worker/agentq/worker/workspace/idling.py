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
from agentq.worker.workspace.git import Leash

PATIENCE_MS = 2_000
"""To make a worktree of very many files takes longer."""
LOOK_S = 0.2

_changed = threading.Condition()
_closing: Counter[Path] = Counter()
"""How many of a folder are being put away by this process."""


@contextmanager
def about_to_be_idle(folder: Path) -> Iterator[None]:
    """While one is put away."""
    with _changed:
        _closing[folder] += 1
    try:
        yield
    finally:
        with _changed:
            _closing[folder] -= 1
            _changed.notify_all()


def one_more(folder: Path, leash: Leash, began_ms: int) -> bool:
    """Wait until one has been put away, of those that are; False if there is none, or it takes too long."""
    with _changed:
        before = _closing[folder]
        if not before:
            return False
        while _closing[folder] >= before:
            leash.check()
            if monotonic_ms() - began_ms >= PATIENCE_MS:
                return False
            _changed.wait(LOOK_S)
        return True
