"""What becomes of a worktree when its run is over: it stays to be looked at, waits for another run, or goes.

Before it goes, what only it holds is sheltered. What cannot be sheltered, a repository that was made within it, keeps
it where it is, whoever asks.
"""

from __future__ import annotations

from typing import Literal

from agentq.coordinator.clock import wall_ms
from agentq.worker.workspace.idling import about_to_be_idle
from agentq.worker.workspace.making import Wanted, is_reusable
from agentq.worker.workspace.note import SUFFIX
from agentq.worker.workspace.sheltering import sheltered
from agentq.worker.workspace.worktree import Worktree, remove, set_idle, shelter

Became = Literal["kept", "idle", "removed"]


def close(worktree: Worktree, *, target: str | None = None, clean_at: str | None = None, idle_max: int = 0) -> Became:
    """Be done with it. `target` is a commit that others keep, in which work may be already; `clean_at` says that
    all that was committed of it is in that commit, by whatever way, and that nothing has run in it since.
    """
    with about_to_be_idle(worktree.path.parent):
        return _closed(worktree, target, clean_at, idle_max)


def _closed(worktree: Worktree, target: str | None, clean_at: str | None, idle_max: int) -> Became:
    if clean_at is not None and not worktree.note.holds:
        sheltered(worktree.repository.git, worktree.note.run, clean_at, target=target)
    elif held := shelter(worktree, target):
        keep(worktree.noted(holds=tuple(held)), f"a repository within it, {held[0]}, is nowhere else")
        return "kept"
    # Killed from here on, the next housekeeping ends it.
    worktree = worktree.noted(state="going")
    reusable = is_reusable(worktree, Wanted("", "", None))
    if reusable and len(list(worktree.path.parent.glob(f"idle-*{SUFFIX}"))) < idle_max:
        set_idle(worktree, target)
        return "idle"
    remove(worktree, target)
    return "removed"


def keep(worktree: Worktree, why: str) -> Worktree:
    """Let it stay, as it is, to be looked at."""
    return worktree.noted(state="kept", ended_at_ms=wall_ms(), why=why)
