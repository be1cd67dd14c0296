"""Releases the worktree of an ended run: it is kept for a person, becomes idle for another run, or is removed.

Before removal, what only it holds is preserved. A repository made within it cannot be preserved, and keeps it in place.
"""

from __future__ import annotations

from typing import Literal

from agentq.coordinator.clock import wall_ms
from agentq.worker.workspace.git.preserved_refs import preserve_commits
from agentq.worker.workspace.worktree.creation import WorktreeRequest, can_reuse
from agentq.worker.workspace.worktree.idle_wait import mark_becoming_idle
from agentq.worker.workspace.worktree.worktree import Worktree, preserve_worktree, remove_worktree, set_idle
from agentq.worker.workspace.worktree.worktree_record import RECORD_SUFFIX

ReleaseResult = Literal["kept", "idle", "removed"]


def release_worktree(
    worktree: Worktree, *, target: str | None = None, clean_at: str | None = None, idle_max: int = 0
) -> ReleaseResult:
    """Release it. `target` is a kept commit that may contain the work; `clean_at` says that everything committed is in
    that commit in any way, and that nothing has run in it since.
    """
    with mark_becoming_idle(worktree.path.parent):
        return _release_locked(worktree, target, clean_at, idle_max)


def _release_locked(worktree: Worktree, target: str | None, clean_at: str | None, idle_max: int) -> ReleaseResult:
    if clean_at is not None and not worktree.record.nested_repositories:
        preserve_commits(worktree.repository.git, worktree.record.run, clean_at, target=target)
    elif held := preserve_worktree(worktree, target):
        keep_worktree(
            worktree.update_record(nested_repositories=tuple(held)),
            f"a repository within it, {held[0]}, is nowhere else",
        )
        return "kept"
    # Killed from here on, the next housekeeping ends it.
    worktree = worktree.update_record(state="going")
    reusable = can_reuse(worktree, WorktreeRequest("", "", None))
    if reusable and len(list(worktree.path.parent.glob(f"idle-*{RECORD_SUFFIX}"))) < idle_max:
        set_idle(worktree, target)
        return "idle"
    remove_worktree(worktree, target)
    return "removed"


def keep_worktree(worktree: Worktree, why: str) -> Worktree:
    """Keep it, as it is, for a person."""
    return worktree.update_record(state="kept", ended_at_ms=wall_ms(), why=why)
