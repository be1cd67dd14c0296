"""The differences between two states of the files, as git lists them, and what an index hides from that."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from agentq.worker.workspace.git.git_command import Git

SUBMODULE_MODE = "160000"
"""The mode of a path that is a repository of its own."""
ABSENT_MODE = "000000"
CONFLICT_MARK = b"M"
SPARSE_MARK = b"S"
"""A mark of `git ls-files -v`; a small letter says that git does not look for changes of the file."""
_MARKED_PATH = re.compile(rb"(?:\A|(?<=\0))([^H]) ([^\0]+)\0")


@dataclass(frozen=True, slots=True)
class FileChange:
    """A changed path, with its modes before and after."""

    path: str
    old_mode: str
    new_mode: str

    @property
    def is_new_repository(self) -> bool:
        return self.new_mode == SUBMODULE_MODE != self.old_mode

    @property
    def has_content(self) -> bool:
        return self.new_mode not in (SUBMODULE_MODE, ABSENT_MODE)


@dataclass(frozen=True, slots=True)
class FileChanges:
    """The changed paths."""

    entries: list[FileChange]
    lines: list[tuple[int, int]]
    """Inserted and deleted lines, by file."""

    @classmethod
    def read(cls, output: str) -> FileChanges:
        """Parses the output of `--raw` and `--numstat`."""
        entries: list[FileChange] = []
        lines: list[tuple[int, int]] = []
        words = iter(output.split("\0"))
        for word in words:
            if word.startswith(":"):
                old, new = word[1:].split(" ")[:2]
                entries.append(FileChange(next(words), old, new))
            elif word:
                came, went, _ = word.split("\t", 2)
                lines.append((_parse_count(came), _parse_count(went)))
        return cls(entries, lines)


def _parse_count(text: str) -> int:
    return int(text) if text.isdigit() else 0


def list_marked(git: Git) -> dict[str, bytes]:
    """Paths in the index that are in conflict or hidden, with their marks."""
    listed = git.bytes("ls-files", "-v", "-z")
    return {os.fsdecode(found[2]): found[1] for found in _MARKED_PATH.finditer(listed)}


def unhide_changes(git: Git, marks: dict[str, bytes]) -> None:
    """Make git see all changes again. In a sparse worktree, files that were not checked out are not deletions."""
    assert git.git_dir is not None
    sparse = (git.git_dir / "config.worktree").exists()
    skipped = [path for path, mark in marks.items() if mark.upper() == SPARSE_MARK]
    unseen = [path for path, mark in marks.items() if mark.islower()]
    back = [path for path in skipped if not sparse or os.path.lexists(git.folder / path)]
    for option, paths in (("--no-assume-unchanged", unseen), ("--no-skip-worktree", back)):
        if paths:
            git(
                "update-index",
                option,
                "-z",
                "--stdin",
                input="".join(f"{path}\0" for path in paths),
                wait_for_locks=True,
            )
