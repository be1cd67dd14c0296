"""How long unused worktrees stay, and how much disk they may take.

Idle ones go first, then kept ones, the oldest first, then what killed workers left, unless their run may still continue
in it. What only a worktree holds is preserved before it goes, and none goes that a live process holds.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from agentq.coordinator.clock import wall_ms
from agentq.coordinator.errors import AgentqError
from agentq.worker.process import process_tree
from agentq.worker.workspace.git.git_command import Git
from agentq.worker.workspace.git.repository import GitRepository
from agentq.worker.workspace.worktree.release import keep_worktree
from agentq.worker.workspace.worktree.worktree import (
    MERGES_PREFIX,
    Worktree,
    is_registered,
    preserve_worktree,
    remove_worktree,
)
from agentq.worker.workspace.worktree.worktree_record import WorktreeRecord, get_record_path, list_records

WorktreeStatus = Literal["running", "kept", "idle", "left", "broken"]
"""`left`: for another attempt, or by a dead worker; `broken`: git does not know it."""
_REMOVAL_ORDER: tuple[WorktreeStatus, ...] = ("idle", "broken", "kept", "left")


@dataclass(frozen=True, slots=True)
class RetentionPolicy:
    """The limits of time and disk."""

    keep_ms: int
    disk_bytes: int


@dataclass(frozen=True, slots=True)
class FoundWorktree:
    """A worktree with its status."""

    record: WorktreeRecord
    kind: WorktreeStatus
    bytes: int | None = None
    """Its size on disk; None if not measured."""

    @property
    def since_ms(self) -> int:
        """When it was last used, as far as recorded."""
        return self.record.ended_at_ms or self.record.made_at_ms

    @property
    def why(self) -> str:
        """Why it exists."""
        if self.kind == "left":
            return self._left
        if self.kind == "broken":
            return "its repository does not know it any more"
        return "it waits for the next run" if self.kind == "idle" else self.record.why

    @property
    def _left(self) -> str:
        if self.record.run.startswith(MERGES_PREFIX):
            return "work is checked in it before it is merged"
        if self.record.state == "going":
            return "whoever was taking it away is gone; the next housekeeping of a worker does"
        if self.record.holder:
            return "its worker is gone; the next attempt of the run goes on in it, or begins anew"
        return f"{self.record.why or 'it is handed on'}; if there is another attempt, it goes on in it"


def list_worktrees(home: Path, *, sizes: bool = False) -> list[FoundWorktree]:
    """All worktrees in a worker's home."""
    return [
        FoundWorktree(note, _get_status(note), measure_folder(note.path) if sizes else None)
        for note in list_records(home / "worktrees")
        if note.path.is_dir()
    ]


def _get_status(note: WorktreeRecord) -> WorktreeStatus:
    if not is_registered(note):
        return "broken"
    if note.state == "kept" or note.state == "idle":
        return note.state
    return "running" if note.is_held else "left"


def select_removals(found: list[FoundWorktree], keeping: RetentionPolicy) -> Iterator[tuple[FoundWorktree, str]]:
    """The worktrees to remove, in order, with reasons."""
    now_ms = wall_ms()
    total = sum(each.bytes or 0 for each in found)
    removable = [each for each in found if each.kind in _REMOVAL_ORDER and not each.record.nested_repositories]
    for each in sorted(removable, key=lambda each: (_REMOVAL_ORDER.index(each.kind), each.since_ms)):
        if each.record.state == "going":
            yield each, "whoever was taking it away is gone"
        elif now_ms - each.since_ms > keeping.keep_ms:
            yield each, "nobody has worked in it for long"
        elif total > keeping.disk_bytes:
            yield each, "the worktrees take more of the disk than they may"
        else:
            continue
        total -= each.bytes or 0


def apply_retention(home: Path, keeping: RetentionPolicy) -> list[str]:
    """Remove what exceeds the limits; a sentence for each removal and each failure."""
    sentences = []
    for each, why in select_removals(list_worktrees(home, sizes=True), keeping):
        try:
            sentences.append(f"{remove_found(each, home)}: {why}")
        except (AgentqError, OSError) as error:
            sentences.append(f"{each.record.path} stays: {error}")
    return sentences


def remove_found(found: FoundWorktree, home: Path) -> str:
    """Remove one, preserving what only it holds; returns what was done. It stays if that cannot be preserved."""
    note = found.record
    if not note.common.is_dir():
        return f"{note.path} stays, as its repository {note.common} is gone; delete it yourself"
    repository = GitRepository(Git(home).in_folder(note.common), None, "origin")
    with repository.locked():
        fresh = WorktreeRecord.read(note.file)
        if fresh is None or fresh.is_held or fresh.state != note.state or fresh.run != note.run:
            return f"{note.path} stays, as somebody works in it again"
        mine = Worktree(repository, fresh).update_record(
            state="going", holder=process_tree.get_process_name(os.getpid())
        )
    if not is_registered(note):
        return _remove_unknown(note)
    held = preserve_worktree(mine)
    if held:
        keep_worktree(
            mine.update_record(nested_repositories=tuple(held)), f"a repository within it, {held[0]}, is nowhere else"
        )
        return f"{note.path} stays, as the repository {held[0]} within it is nowhere else"
    remove_worktree(mine)
    kept = note.run and repository.commit(f"refs/agentq/{note.run}")
    return f"{note.path} removed{f', its work kept as refs/agentq/{note.run}' if kept else ''}"


def _remove_unknown(note: WorktreeRecord) -> str:
    """Remove a worktree that its repository does not know, so that nothing can be preserved."""
    note.file.unlink(missing_ok=True)
    return f"{note.path} is no worktree any more, and left to you"


def measure_folder(folder: Path) -> int:
    """Bytes on disk below a folder; hard links are counted once."""
    total, seen = 0, set[tuple[int, int]]()
    todo = [folder]
    while todo:
        try:
            entries = list(os.scandir(todo.pop()))
        except OSError:
            continue  # it went while we looked
        for entry in entries:
            status = _stat_entry(entry)
            if status is None:
                continue
            if entry.is_dir(follow_symlinks=False):
                todo.append(Path(entry.path))
            if status.st_nlink == 1 or (status.st_dev, status.st_ino) not in seen:
                total += status.st_blocks * 512
            if status.st_nlink > 1:
                seen.add((status.st_dev, status.st_ino))
    return total


def _stat_entry(entry: os.DirEntry[str]) -> os.stat_result | None:
    try:
        return entry.stat(follow_symlinks=False)
    except OSError:
        return None


def find_unrecorded(home: Path) -> list[Path]:
    """Folders among the worktrees without a record."""
    folders = (path for path in (home / "worktrees").glob("*/*") if path.is_dir() and not path.is_symlink())
    return sorted(path for path in folders if not get_record_path(path).exists())
