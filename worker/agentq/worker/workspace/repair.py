"""Repairs of work that conflicts with the target, or whose check fails.

The agent is told in its conversation what is wrong, in its worktree, into which the target was merged: conflicts are
there with their markers. The repaired work is committed and delivered like any other.
"""

from __future__ import annotations

import os
import shlex

from agentq.coordinator.model.workspace import WorkspaceSpec
from agentq.coordinator.runs.merge_progress import RepairReason
from agentq.worker.workspace.git.git_command import GitFailed
from agentq.worker.workspace.worktree.worktree import Worktree

CHECK_OUTPUT_CHARACTERS = 24 << 10
"""How much of a check's output to keep: its end."""
NAMED_FILES_MAX = 100


def merge_target(worktree: Worktree, target: str) -> tuple[str, ...]:
    """Merge the target into a worktree; returns the files with conflicts, which have markers now."""
    git = worktree.git
    if (worktree.record.git_dir / "MERGE_HEAD").exists():
        return _list_unmerged(worktree)  # begun by an earlier attempt and not resolved yet
    if git.is_ancestor(target, "HEAD"):
        return ()
    try:
        git("merge", "-q", "--no-ff", "--no-edit", "--no-commit", target, wait_for_locks=True)
    except GitFailed:
        files = _list_unmerged(worktree)
        if not files:
            raise
        return files
    return ()


def _list_unmerged(worktree: Worktree) -> tuple[str, ...]:
    output = worktree.git("diff", "--name-only", "--diff-filter=U", "-z").split("\0")
    return tuple(dict.fromkeys(file for file in output if file))


def find_unresolved(worktree: Worktree, repair: RepairReason) -> tuple[str, ...]:
    """The files with unresolved conflicts. Without markers a conflict counts as resolved, even if git was not told; a
    conflict that never had markers is resolved only when git was told.
    """
    unmerged = _list_unmerged(worktree)
    unresolved = tuple(
        file for file in unmerged if file in repair.unmarked or has_conflict_markers(worktree, file, repair.target)
    )
    marked_again = tuple(
        file for file in repair.files if file not in unresolved and has_conflict_markers(worktree, file, repair.target)
    )
    done = [file for file in unmerged if file not in unresolved]
    if done:
        worktree.git("add", "-A", "--", *(f":(top,literal){file}" for file in done), wait_for_locks=True)
    return unresolved + marked_again


def has_conflict_markers(worktree: Worktree, file: str, target: str) -> bool:
    """Whether a file has markers of a conflict with the target. A page about git has markers of its own: those that
    either side has are no conflict.
    """
    path = worktree.path / file
    if path.is_symlink() or not path.is_file():
        return False
    found = _count_markers(os.fsdecode(path.read_bytes()))
    if not all(found):
        return False
    git, ours = worktree.git, worktree.record.settled or "HEAD"
    merge_base = git.answers("merge-base", ours, target)
    mine, theirs, common = (
        _count_markers(git.answers("show", f"{commit}:{file}") or "") if commit else (0, 0)
        for commit in (ours, target, merge_base)
    )
    return any(now > one + other - both for now, one, other, both in zip(found, mine, theirs, common, strict=True))


def _count_markers(text: str) -> tuple[int, int]:
    """How many conflicts begin in a text, and how many end."""
    lines = text.split("\n")
    begin, end = (sum(line.startswith(mark) for line in lines) for mark in ("<<<<<<< ", ">>>>>>> "))
    return begin, end


def build_repair_prompt(repair: RepairReason, workspace: WorkspaceSpec) -> str:
    """The prompt that asks the agent for the repair."""
    return (
        _build_conflict_prompt(repair, workspace)
        if repair.what == "conflict"
        else _build_check_prompt(repair, workspace)
    )


def _build_conflict_prompt(repair: RepairReason, workspace: WorkspaceSpec) -> str:
    without = " (without markers: decide, and tell git by `git add` or `git rm`)"
    listed = "\n".join(
        f"- {file}{without if file in repair.unmarked else ''}" for file in repair.files[:NAMED_FILES_MAX]
    )
    more = f"\n- and {len(repair.files) - NAMED_FILES_MAX} more" if repair.files[NAMED_FILES_MAX:] else ""
    return (
        f"Your work is done and kept, but it conflicts with what has meanwhile come into {workspace.target}. That has "
        f"been merged into your working tree, and these files are in conflict:\n\n{listed}{more}\n\n"
        "Resolve the conflicts in these files: keep what your work is for and what the others have done, and leave no "
        "conflict markers. Do not abort or undo the merge, and do not change anything that this does not need. "
        "See that the result works. You need not commit."
    )


def _build_check_prompt(repair: RepairReason, workspace: WorkspaceSpec) -> str:
    output = f"It ended like this:\n\n{repair.told}" if repair.told.strip() else "It wrote nothing."
    return (
        f"Your work is done and kept, but merged with what is in {workspace.target} now, {repair.why}. That has been "
        f"merged into your working tree, so you can run the check there: {shlex.join(workspace.check)}\n\n"
        f"{output}\n\nMend your work, so that it succeeds. You need not commit."
    )
