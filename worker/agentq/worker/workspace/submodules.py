"""The submodules of a worktree: those that the repository's own checkout has, taken from there and not from afar.

Git makes a worktree without any. What a checkout has never had, its worktrees do not get; a copy of a repository with
an address has no checkout, and gets them all from where they say they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from agentq.worker.workspace.git import Git

DEPTH = 8
"""How deep submodules of submodules are followed."""


def furnish_submodules(git: Git, store: Path | None) -> None:
    """Fill those whose repositories are in a store, or all of them, from afar, where there is no store."""
    if not (git.folder / ".gitmodules").is_file():
        return
    if store is None:
        git("submodule", "update", "-q", "--init", "--recursive", far=True)
    else:
        _fill(git, store, DEPTH)


def _fill(git: Git, store: Path, depth: int) -> None:
    for name, path in submodules(git):
        source = store / name
        if depth <= 0 or "=" in name or not (source / "HEAD").is_file():
            continue
        near = ("-c", "protocol.file.allow=always", "-c", f"submodule.{name}.url={source}")
        git(*near, "submodule", "update", "-q", "--init", "--", path)
        inside = git.within(git.folder / path)
        if address := git.within(source).answers("config", "--get", "remote.origin.url"):
            inside("config", "remote.origin.url", address)
        if (inside.folder / ".gitmodules").is_file():
            _fill(inside, source / "modules", depth - 1)


def submodules(git: Git) -> Iterator[tuple[str, str]]:
    """The name and path of each that a checkout says it has."""
    listed = git("config", "-z", "--file", ".gitmodules", "--get-regexp", r"^submodule\..*\.path$", also=(1,))
    for entry in listed.split("\0"):
        key, mark, path = entry.partition("\n")
        name = key.removeprefix("submodule.").removesuffix(".path")
        if mark and ".." not in Path(name).parts and not Path(name).is_absolute():
            yield name, path
