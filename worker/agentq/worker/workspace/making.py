"""Making worktrees. The files are most of the work: so worktrees that are done with are kept idle, and the next run has
one of them brought to its commit and cleaned, which costs what has to change.

What git cannot do twice at a time in a repository is done alone, and a new worktree is entered without its files: they
are written after that, at the same time as those of others. What fails is rolled back. What stood there before is
sheltered first; and a worktree that another worker still has is put aside, work and processes and all.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from agentq.coordinator.clock import monotonic_ms, wall_ms
from agentq.worker import tree
from agentq.worker.workspace import metadata
from agentq.worker.workspace.git import Git, GitFailed, hidden
from agentq.worker.workspace.idling import one_more
from agentq.worker.workspace.note import SUFFIX, Note
from agentq.worker.workspace.repository import Repository
from agentq.worker.workspace.sheltering import sheltered
from agentq.worker.workspace.submodules import furnish_submodules
from agentq.worker.workspace.worktree import (
    UNDER_WAY,
    Worktree,
    clear,
    drop_locks,
    folder_of,
    found,
    is_its_own,
    moved,
    point_back,
    remove,
    roll_back,
    shelter,
)

GOING_MS = 60_000
"""How long a worktree that somebody is taking away is waited for."""
PAUSE_S = 0.1


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a worktree is to be."""

    name: str
    """Of its folder: the run's id, mostly."""
    commit: str
    branch: str | None
    """Made new at the commit; without one, nothing is checked out but the commit."""
    asked: str = ""
    """The repository, as it was asked for."""
    worker: str = ""
    sparse: Sequence[str] = ()


def made(repository: Repository, home: Path, wanted: Wanted) -> Worktree:
    """A worktree as it is wanted: one that was idle, or a new one."""
    folder = folder_of(home, repository)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / wanted.name
    earlier = _seized(repository, path)
    if earlier is not None and (held := shelter(earlier)):
        _put_aside(earlier.noted(holds=tuple(held)), f"a repository within it, {held[0]}, is nowhere else")
        earlier = None
    if earlier is not None and is_reusable(earlier, wanted):
        return _brought(earlier, wanted)
    if earlier is not None:
        remove(earlier)
    elif os.path.lexists(path):
        path.rename(_aside(path))  # what nobody knows is not ours to delete
    if not wanted.sparse and (idle := _taken(repository, folder, path)) is not None:
        try:
            return _brought(idle, wanted)
        except GitFailed:
            remove(idle)  # whatever has happened to it while nobody looked; a new one it is
    return _added(repository, path, wanted)


def again(repository: Repository, home: Path, run: str, worker: str = "") -> Worktree | None:
    """The worktree that an earlier attempt of the run left on this host, as it was left."""
    earlier = _seized(repository, folder_of(home, repository) / run, worker=worker)
    if earlier is None:
        return None
    point_back(earlier)
    return earlier.noted(ended_at_ms=None, why="")


def _seized(repository: Repository, path: Path, **changes: object) -> Worktree | None:
    """What stands there, now ours. What another worker has, whose attempt is superseded by ours, is put aside."""
    if not path.exists():
        return None
    deadline_ms = monotonic_ms() + GOING_MS
    while True:
        with repository.locked() as git:
            there = found(repository, path)
            if there is None:
                return None
            if not there.note.is_held or there.note.keeper == _keeper():
                return there.noted(state="open", keeper=_keeper(), **changes)
            if there.note.state == "open":
                superseded = Worktree(replace(repository, git=git), there.note)
                shelter(superseded)
                _put_aside(superseded, "its worker had it still, when another attempt of the run began")
                return None
        if monotonic_ms() >= deadline_ms:
            raise GitFailed(f"{path} is being taken away by process {there.note.keeper} all the time.")
        repository.git.leash.pause(PAUSE_S)


def _put_aside(worktree: Worktree, why: str) -> None:
    """Out of the way, and off its branch; what runs in it goes on there, and harms nobody."""
    git = worktree.git
    git("update-ref", "--no-deref", "HEAD", git("rev-parse", "HEAD").strip(), patient=True)
    moved(worktree, _aside(worktree.path), state="kept", branch=None, keeper="", ended_at_ms=wall_ms(), why=why)


def _aside(path: Path) -> Path:
    """A name beside it that nothing has."""
    return next(name for number in range(10_000) if not (name := path.with_name(f"{path.name}.{number}")).exists())


# ---- one that was used before


def is_reusable(worktree: Worktree, wanted: Wanted) -> bool:
    """Whether what it holds can be told apart from what it is to hold."""
    if wanted.sparse or (worktree.path / ".git").is_dir() or (worktree.note.git_dir / "modules").exists():
        return False
    return not (worktree.note.git_dir / "config.worktree").exists()


def _taken(repository: Repository, folder: Path, path: Path) -> Worktree | None:
    """An idle one, which is now there; or one that is idle in a moment."""
    began_ms = monotonic_ms()
    while True:
        idle = _idle(repository, folder, path)
        if idle is not None or not one_more(folder, repository.git.leash, began_ms):
            return idle


def _idle(repository: Repository, folder: Path, path: Path) -> Worktree | None:
    if not any(folder.glob(f"idle-*{SUFFIX}")):
        return None
    with repository.locked():
        for file in sorted(folder.glob(f"idle-*{SUFFIX}")):
            note = Note.read(file)
            if note is None or note.state != "idle" or not note.path.is_dir() or not is_its_own(note):
                continue
            return moved(Worktree(repository, note), path, state="open", keeper=_keeper())
    return None


def _brought(worktree: Worktree, wanted: Wanted) -> Worktree:
    """To its commit and branch, without anything else in it."""
    git = worktree.git
    drop_locks(worktree)
    for name in UNDER_WAY:
        metadata.remove(worktree.note.git_dir / name)
    point_back(worktree)
    _check_out(worktree.repository, git, wanted)
    git("clean", "-q", "-ffdx")
    return worktree.noted(**_about(wanted), set_up="", furnished=(), holds=(), ended_at_ms=None, why="")


def _check_out(repository: Repository, git: Git, wanted: Wanted) -> None:
    """On its branch, which is new; what an earlier one of that name had is sheltered."""
    if wanted.branch is None:
        git("checkout", "-q", "-f", "--detach", wanted.commit, patient=True)
        return
    over = ("checkout", "-q", "-f", "--no-track")
    try:
        git(*over, "-b", wanted.branch, wanted.commit, patient=True)
    except GitFailed as failed:
        if "already exists" not in failed.said:
            raise
        _shelter_branch(repository, wanted)
        git(*over, "-B", wanted.branch, wanted.commit, patient=True)


def _shelter_branch(repository: Repository, wanted: Wanted) -> bool:
    """What a branch of that name has; whether there is one."""
    tip = wanted.branch and repository.commit(f"refs/heads/{wanted.branch}")
    if tip:
        sheltered(repository.git, wanted.name, tip, target=wanted.commit)
    return bool(tip)


# ---- a new one


def _added(repository: Repository, path: Path, wanted: Wanted) -> Worktree:
    clear(path)
    where = ("--no-track", "-B", wanted.branch) if wanted.branch else ("--detach",)
    with repository.locked() as git:
        had = _shelter_branch(repository, wanted)
        try:
            git("worktree", "add", "-q", "--no-checkout", *where, str(path), wanted.commit, patient=True)
            git_dir = Path((path / ".git").read_text().removeprefix("gitdir: ").strip())
            note = Note(path=path, common=repository.common, git_dir=git_dir, repository=hidden(wanted.asked))
            worktree = Worktree(repository, note).noted(**_about(wanted))
        except BaseException:
            roll_back(git, path)
            if wanted.branch and not had:
                with suppress(GitFailed):
                    git("update-ref", "-d", f"refs/heads/{wanted.branch}", wanted.commit)
            raise
    try:
        if wanted.sparse:
            with repository.locked() as git:  # it writes the repository's configuration
                inside = git.within(path, git_dir)
                inside("sparse-checkout", "set", "--stdin", input="".join(f"{each}\n" for each in wanted.sparse))
        worktree.git("reset", "-q", "--hard", patient=True)
        furnish_submodules(worktree.git, repository.modules)
    except BaseException:
        remove(worktree, wanted.commit)
        raise
    return worktree


def _about(wanted: Wanted) -> dict[str, object]:
    return {
        "run": wanted.name,
        "branch": wanted.branch,
        "base": wanted.commit,
        "repository": hidden(wanted.asked),
        "worker": wanted.worker,
        "keeper": _keeper(),
        "state": "open",
        "made_at_ms": wall_ms(),
    }


def _keeper() -> str:
    return tree.keeper(os.getpid())
