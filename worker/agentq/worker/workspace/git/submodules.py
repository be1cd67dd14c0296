"""The submodules of a worktree, taken from the repository's own checkout instead of another machine.

Git makes a worktree without any. Submodules that the checkout never had are not added; a clone of an address has no
checkout, and fetches them all from their addresses.

Each worktree has repositories of its own for them, which are removed with it; so work in them is first brought to those
of the repository.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from agentq.worker.workspace.git.git_command import Git
from agentq.worker.workspace.git.preserved_refs import PRESERVED_REFS, commit_snapshot, preserve_commits

DEPTH_MAX = 8
"""How deep nested submodules are followed."""


def fill_submodules(git: Git, store: Path | None) -> None:
    """Fill submodules whose repositories are in a store; without a store, fetch all."""
    if not (git.folder / ".gitmodules").is_file():
        return
    if store is None:
        git("submodule", "update", "-q", "--init", "--recursive", remote=True)
    else:
        _fill_nested(git, store, DEPTH_MAX)


def _fill_nested(git: Git, store: Path, depth: int) -> None:
    for name, path in list_submodules(git):
        source = store / name
        if depth <= 0 or "=" in name or not (source / "HEAD").is_file():
            continue
        near = ("-c", "protocol.file.allow=always", "-c", f"submodule.{name}.url={source}")
        git(*near, "submodule", "update", "-q", "--init", "--", path)
        inside = git.in_folder(git.folder / path)
        if address := git.in_folder(source).answers("config", "--get", "remote.origin.url"):
            inside("config", "remote.origin.url", address)
        if (inside.folder / ".gitmodules").is_file():
            _fill_nested(inside, source / "modules", depth - 1)


def list_submodules(git: Git) -> Iterator[tuple[str, str]]:
    """The name and path of each submodule that a checkout lists."""
    listed = git("config", "-z", "--file", ".gitmodules", "--get-regexp", r"^submodule\..*\.path$", ok_codes=(1,))
    for entry in listed.split("\0"):
        key, mark, path = entry.partition("\n")
        name = key.removeprefix("submodule.").removesuffix(".path")
        if mark and ".." not in Path(name).parts and not Path(name).is_absolute():
            yield name, path


def preserve_submodules(git: Git, store: Path | None, run: str) -> list[str]:
    """Preserve work in submodules in their source repositories, under the run's ref; returns those without a local
    source.
    """
    assert git.git_dir is not None
    held = []
    for name, path in list_submodules(git) if (git.git_dir / "modules").is_dir() else ():
        own = git.git_dir / "modules" / name
        if not (own / "HEAD").is_file() or not (git.folder / path).is_dir():
            continue
        inside = git.in_folder(git.folder / path, own)
        tips = [inside.answers("rev-parse", "--verify", "--quiet", "HEAD^{commit}"), commit_snapshot(inside, run)]
        home = git.in_folder(store / name) if store is not None and (store / name / "HEAD").is_file() else None
        new = [tip for tip in tips if tip and not (home and _has_commit(home, tip))]
        if new and home is None:
            held.append(path)
        elif new and home is not None:
            kept = preserve_commits(inside, run, *new)
            into = f"refs/agentq-fetched/{run}"
            home("fetch", "-q", "--no-tags", "--no-write-fetch-head", str(own), f"+{PRESERVED_REFS}{run}:{into}")
            preserve_commits(home, run, kept or new[-1])
            home("update-ref", "-d", into, wait_for_locks=True)
    return held


def _has_commit(git: Git, commit: str) -> bool:
    """Whether a repository has a commit permanently."""
    return git.answers("rev-list", "-1", commit, "--not", "--all") == ""
