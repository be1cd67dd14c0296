"""What a worktree gets beside the repository's content: local files of the checkout, free ports, and variables.

Copies and links are confined: nothing comes from outside the checkout, nothing goes outside the worktree, whatever
links are on the way. A named file that is missing is an error: the work would fail later, with a less clear one.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from agentq.coordinator.errors import Invalid, NotFound
from agentq.worker.workspace.worktree.worktree import Worktree

COPIED_BYTES_MAX = 2 << 30
"""Size limit of one path; link larger ones."""


def add_local_files(worktree: Worktree, copies: Sequence[str], links: Sequence[str]) -> Worktree:
    """Copy and link the files, each as it is in the repository's checkout now."""
    if not copies and not links:
        return worktree
    top = worktree.repository.top
    if top is None:
        raise Invalid(f"{worktree.record.repository} has no checkout to copy or link {(*copies, *links)[0]} from.")
    _refuse_tracked(worktree, [*copies, *links])
    worktree = worktree.update_record(
        placed_files=tuple(dict.fromkeys((*worktree.record.placed_files, *copies, *links)))
    )
    for path in copies:
        _copy_path(_resolve_source(top, path), _resolve_target(worktree.path, path))
    for path in links:
        source, target = _resolve_source(top, path), _resolve_target(worktree.path, path)
        _remove_path(target)
        target.symlink_to(source)
    return worktree


def _refuse_tracked(worktree: Worktree, paths: list[str]) -> None:
    output = worktree.git("ls-files", "-z", "--", *(f":(top,literal){path}" for path in paths))
    if tracked := output.split("\0")[0]:
        raise Invalid(f"{tracked} is in the repository, so a copy or link of it would become a part of the work.")


def _resolve_source(top: Path, path: str) -> Path:
    """Its real path, within the checkout."""
    try:
        source = (top / path).resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise NotFound(
            f"{top / path} is to be in the worktree, and does not exist; make it, or do not name it."
        ) from error
    if not source.is_relative_to(top.resolve()):
        raise Invalid(f"{top / path} leads out of the repository's checkout, to {source}, and is not taken.")
    return source


def _resolve_target(folder: Path, path: str) -> Path:
    """Its path, within the worktree."""
    target = folder / path
    above = target.parent
    while not os.path.lexists(above):
        above = above.parent
    if not above.resolve().is_relative_to(folder.resolve()):
        raise Invalid(f"{path} cannot be put into the worktree: {above.relative_to(folder)} is a link that leads out.")
    target.parent.mkdir(parents=True, exist_ok=True)
    return target


def _copy_path(source: Path, target: Path) -> None:
    size = sum(file.lstat().st_size for file in source.rglob("*")) if source.is_dir() else source.stat().st_size
    if size > COPIED_BYTES_MAX:
        raise Invalid(f"{source} has {size >> 20} MiB, more than a copy may have; link it.")
    _remove_path(target)
    if source.is_dir():
        shutil.copytree(source, target, symlinks=True)
    else:
        shutil.copy2(source, target)


def _remove_path(path: Path) -> None:
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.exists():
        shutil.rmtree(path)


def build_workspace_variables(worktree: Worktree, ports: Mapping[str, int]) -> dict[str, str]:
    """The variables that describe the worktree to the run."""
    own = {"AGENTQ_WORKTREE": str(worktree.path), "AGENTQ_BASE": worktree.base}
    if worktree.branch:
        own["AGENTQ_BRANCH"] = worktree.branch
    if worktree.repository.top is not None:
        own["AGENTQ_REPOSITORY"] = str(worktree.repository.top)
    return {**own, **{name: str(port) for name, port in ports.items()}}


def has_unfetched_lfs(worktree: Worktree) -> bool:
    """Whether files are in LFS and not fetched."""
    try:
        attributes = (worktree.path / ".gitattributes").read_text(errors="replace")
    except OSError:
        return False
    return "filter=lfs" in attributes and not worktree.git.answers("config", "--get", "filter.lfs.smudge")
