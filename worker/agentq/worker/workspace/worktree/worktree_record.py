"""What is noted beside each worktree: whose it is, from what it was made, who holds it, and why it is still there.

By this, whoever comes later knows what is what: another attempt of the run, another worker, `agentq worktree`. A note
is replaced as a whole. Who holds a worktree is alive as long as the process of that number and time is.
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
    """One worktree's."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)

    path: Path
    common: Path
    """The git directory of the repository."""
    git_dir: Path
    """The worktree's own; what a file in it says is not believed."""
    repository: str
    """As the run names it, without a password."""
    state: Literal["open", "kept", "idle", "going"] = "open"
    """`open`: a run works in it; `kept`: it stays to be looked at; `idle`: it waits for another run, empty; `going`: it
    is being taken away.
    """
    run: str = ""
    branch: str | None = None
    base: str = ""
    """The commit that it was made from."""
    settled: str = ""
    """The commit that has all it held when its work was committed."""
    keeper: str = ""
    """The process that holds it."""
    worker: str = ""
    made_at_ms: int = 0
    ended_at_ms: int | None = None
    why: str = ""
    """Why it is kept."""
    set_up: str = ""
    """The setup that has succeeded in it."""
    holds: tuple[str, ...] = ()
    """Repositories that were made within it, which are nowhere else: it may not be removed."""
    furnished: tuple[str, ...] = ()
    """What was put there that is not part of the work."""

    @property
    def file(self) -> Path:
        return get_record_path(self.path)

    @property
    def is_held(self) -> bool:
        """Whether somebody who lives works in it."""
        return self.state in ("open", "going") and bool(self.keeper) and not process_tree.is_process_gone(self.keeper)

    def updated(self, **changes: object) -> Self:
        """Changed, and written."""
        changed = self.model_copy(update=changes)
        changed.write()
        return changed

    def write(self) -> None:
        fresh = self.file.with_name(f"{self.file.name}.{os.getpid()}.new")
        fresh.write_text(self.model_dump_json(exclude_defaults=True), encoding="utf-8")
        fresh.replace(self.file)

    @classmethod
    def read(cls, file: Path) -> Self | None:
        """What was noted; None where nothing was, or where it cannot be read."""
        try:
            return cls.model_validate_json(file.read_bytes())
        except (OSError, ValidationError):
            return None


def get_record_path(path: Path) -> Path:
    """Where the note of a worktree stands."""
    return path.with_name(path.name + RECORD_SUFFIX)


def list_records(folder: Path) -> Iterator[WorktreeRecord]:
    """Of all worktrees below a folder, the oldest first, in whichever repository."""
    found = (WorktreeRecord.read(file) for file in folder.glob(f"*/*{RECORD_SUFFIX}"))
    yield from sorted((note for note in found if note is not None), key=lambda note: (note.made_at_ms, note.path))
