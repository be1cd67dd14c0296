"""Decides what an agent may do when it asks: by the permissions of the run, never by a person.

`read` allows reading, `edit` also changes to files within its folder, `full` everything. An agent that does not ask
cannot be refused here.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

Permissions = Literal["read", "edit", "full"]

READING_KINDS = frozenset(("read", "search", "think"))
WRITING_KINDS = frozenset(("edit", "delete", "move"))


def find_refusal(permissions: Permissions, kind: str, paths: Iterable[str], cwd: Path) -> str | None:
    """Why this is not allowed; None if it is."""
    if permissions == "full" or kind in READING_KINDS:
        return None
    if permissions == "edit" and kind in WRITING_KINDS:
        return _find_outside(list(paths), cwd)
    return (
        f"the run may only {permissions}"
        if kind in WRITING_KINDS | {"execute"}
        else f"`{permissions}` does not allow it"
    )


def _find_outside(paths: list[str], cwd: Path) -> str | None:
    """Why these files must not be changed. Links are followed first: their targets are what would change."""
    if not paths:
        return "it does not say which file it would change"
    folder = cwd.resolve()
    for path in paths:
        try:
            where = (folder / path).resolve()
        except (OSError, RuntimeError, ValueError) as error:  # links in a circle, a NUL
            return f"it cannot be known which file that is ({error})"
        if where.is_symlink():  # a circle, where that is no error
            return "it cannot be known which file that is (links in a circle)"
        if not where.is_relative_to(folder):
            return f"{path} is not in the run's folder"
        if ".git" in where.relative_to(folder).parts:
            # Git keeps programs there too, and starts them for the next user of the repository.
            return f"{path} belongs to git"
    return None
