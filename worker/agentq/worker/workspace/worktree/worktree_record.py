"""The record beside each worktree: its run, its base, its holder, and why it still exists.

Other attempts of the run, other workers and `agentq worktree` read it. It is replaced as a whole. The holder is alive
as long as the process with its number and start time is.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from agentq.worker.process import process_tree

RECORD_SUFFIX = ".json"


class WorktreeRecord(BaseModel):
    """The record of one worktree."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)

    path: Path
    common: Path
    """The git directory of the repository."""
    git_dir: Path
    """The worktree's own git directory; a file in it that says otherwise is not trusted."""
    repository: str
    """As the run names it, without a password."""
    state: Literal["open", "kept", "idle", "going"] = "open"
    """`open`: a run works in it; `kept`: for a person; `idle`: empty, for another run; `going`: it is being removed."""
    run: str = ""
    branch: str | None = None
    base: str = ""
    """The commit that it was made from."""
    settled: str = ""
    """The commit with everything in it when its work was committed."""
    holder: str = ""
    """The process that holds it."""
    worker: str = ""
    made_at_ms: int = 0
    ended_at_ms: int | None = None
    why: str = ""
    """Why it is kept."""
    set_up: str = ""
    """The digest of the setup that has succeeded in it."""
    nested_repositories: tuple[str, ...] = ()
    """Repositories made in it that exist nowhere else. While there are any, it must not be removed."""
    placed_files: tuple[str, ...] = ()
    """Local files copied or linked into it, which are not part of the work."""

    @property
    def file(self) -> Path:
        return get_record_path(self.path)

    @property
    def is_held(self) -> bool:
        """Whether a live process holds it."""
        return self.state in ("open", "going") and bool(self.holder) and not process_tree.is_process_gone(self.holder)

    def updated(self, **changes: object) -> Self:
        """The changed record, written."""
        changed = self.model_copy(update=changes)
        changed.write()
        return changed

    def write(self) -> None:
        fresh = self.file.with_name(f"{self.file.name}.{os.getpid()}.new")
        fresh.write_text(self.model_dump_json(exclude_defaults=True), encoding="utf-8")
        fresh.replace(self.file)

    @classmethod
    def read(cls, file: Path) -> Self | None:
        """The record in a file; None if there is none, or it is unreadable."""
        try:
            return cls.model_validate_json(file.read_bytes())
        except (OSError, ValidationError):
            return None


def get_record_path(path: Path) -> Path:
    """The path of a worktree's record."""
    return path.with_name(path.name + RECORD_SUFFIX)


def list_records(folder: Path) -> Iterator[WorktreeRecord]:
    """The records of all worktrees below a folder, in all repositories, the oldest first."""
    found = (WorktreeRecord.read(file) for file in folder.glob(f"*/*{RECORD_SUFFIX}"))
    yield from sorted((note for note in found if note is not None), key=lambda note: (note.made_at_ms, note.path))
