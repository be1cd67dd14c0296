"""Makes worktrees. Writing the files is most of the work, so released worktrees are kept idle, and the next run gets
one of them moved to its commit and cleaned.

Steps that git cannot do concurrently in a repository hold its lock. A new worktree is added without files; they are
written after that, in parallel with others. Failures are rolled back. Content that was at the path before is preserved
first; a worktree that another worker holds is moved aside with its processes.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from agentq.coordinator.clock import monotonic_ms, wall_ms
from agentq.worker.process import process_tree
from agentq.worker.workspace.git import git_files
from agentq.worker.workspace.git.git_command import Git, GitFailed, hide_credentials
from agentq.worker.workspace.git.preserved_refs import preserve_commits
from agentq.worker.workspace.git.repository import GitRepository
from agentq.worker.workspace.git.submodules import fill_submodules
from agentq.worker.workspace.worktree.idle_wait import wait_for_idle
from agentq.worker.workspace.worktree.worktree import (
    OPERATION_FILES,
    Worktree,
    clear_folder,
    drop_locks,
    find_worktree,
    get_worktrees_folder,
    is_registered,
    move_worktree,
    preserve_worktree,
    remove_worktree,
    repair_git_link,
    roll_back,
)
from agentq.worker.workspace.worktree.worktree_record import RECORD_SUFFIX, WorktreeRecord

REMOVAL_WAIT_MS = 60_000
"""How long to wait for a worktree that is being removed."""
POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class WorktreeRequest:
    """The worktree to make."""

    name: str
    """The name of its folder: usually the run's id."""
    commit: str
    branch: str | None
    """A new branch at the commit; None for a detached HEAD."""
    repository_name: str = ""
    """The repository as the run names it."""
    worker: str = ""
    sparse: Sequence[str] = ()


def make_worktree(repository: GitRepository, home: Path, request: WorktreeRequest) -> Worktree:
    """A worktree as requested: an idle one, or a new one."""
    folder = get_worktrees_folder(home, repository)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / request.name
    earlier = _seize_worktree(repository, path)
    if earlier is not None and (held := preserve_worktree(earlier)):
        _move_aside(
            earlier.update_record(nested_repositories=tuple(held)),
            f"a repository within it, {held[0]}, is nowhere else",
        )
        earlier = None
    if earlier is not None and can_reuse(earlier, request):
        return _bring_to_commit(earlier, request)
    if earlier is not None:
        remove_worktree(earlier)
    elif os.path.lexists(path):
        path.rename(_find_free_path(path))  # it has no record, so it is not ours to delete
    if not request.sparse and (idle := _take_idle(repository, folder, path)) is not None:
        try:
            return _bring_to_commit(idle, request)
        except GitFailed:
            remove_worktree(idle)  # an idle one may have been changed: make a new one
    return _add_worktree(repository, path, request)


def reopen_worktree(repository: GitRepository, home: Path, run: str, worker: str = "") -> Worktree | None:
    """The worktree that an earlier attempt of the run left on this host, unchanged."""
    earlier = _seize_worktree(repository, get_worktrees_folder(home, repository) / run, worker=worker)
    if earlier is None:
        return None
    repair_git_link(earlier)
    return earlier.update_record(ended_at_ms=None, why="")


def _seize_worktree(repository: GitRepository, path: Path, **changes: object) -> Worktree | None:
    """Take over the worktree at a path. One held by a fenced attempt of another worker is moved aside."""
    if not path.exists():
        return None
    deadline_ms = monotonic_ms() + REMOVAL_WAIT_MS
    while True:
        with repository.locked() as git:
            there = find_worktree(repository, path)
            if there is None:
                return None
            if not there.record.is_held or there.record.holder == _get_process_name():
                return there.update_record(state="open", holder=_get_process_name(), **changes)
            if there.record.state == "open":
                superseded = Worktree(replace(repository, git=git), there.record)
                preserve_worktree(superseded)
                _move_aside(superseded, "its worker had it still, when another attempt of the run began")
                return None
        if monotonic_ms() >= deadline_ms:
            raise GitFailed(f"{path} is being taken away by process {there.record.holder} all the time.")
        repository.git.cancellation.pause(POLL_S)


def _move_aside(worktree: Worktree, why: str) -> None:
    """Move it away, off its branch; its processes continue there harmlessly."""
    git = worktree.git
    git("update-ref", "--no-deref", "HEAD", git("rev-parse", "HEAD").strip(), wait_for_locks=True)
    move_worktree(
        worktree, _find_free_path(worktree.path), state="kept", branch=None, holder="", ended_at_ms=wall_ms(), why=why
    )


def _find_free_path(path: Path) -> Path:
    """A free name beside it."""
    return next(name for number in range(10_000) if not (name := path.with_name(f"{path.name}.{number}")).exists())


# ---- one that was used before


def can_reuse(worktree: Worktree, request: WorktreeRequest) -> bool:
    """Whether its files differ from the requested ones only in ways that git sees."""
    if request.sparse or (worktree.path / ".git").is_dir() or (worktree.record.git_dir / "modules").exists():
        return False
    return not (worktree.record.git_dir / "config.worktree").exists()


def _take_idle(repository: GitRepository, folder: Path, path: Path) -> Worktree | None:
    """An idle worktree, moved to the path; waits a moment for one that is becoming idle."""
    began_ms = monotonic_ms()
    while True:
        idle = _find_idle(repository, folder, path)
        if idle is not None or not wait_for_idle(folder, repository.git.cancellation, began_ms):
            return idle


def _find_idle(repository: GitRepository, folder: Path, path: Path) -> Worktree | None:
    if not any(folder.glob(f"idle-*{RECORD_SUFFIX}")):
        return None
    with repository.locked():
        for file in sorted(folder.glob(f"idle-*{RECORD_SUFFIX}")):
            note = WorktreeRecord.read(file)
            if note is None or note.state != "idle" or not note.path.is_dir() or not is_registered(note):
                continue
            return move_worktree(Worktree(repository, note), path, state="open", holder=_get_process_name())
    return None


def _bring_to_commit(worktree: Worktree, request: WorktreeRequest) -> Worktree:
    """Check out its commit and branch, and remove everything else."""
    git = worktree.git
    drop_locks(worktree)
    for name in OPERATION_FILES:
        git_files.remove_path(worktree.record.git_dir / name)
    repair_git_link(worktree)
    _check_out(worktree.repository, git, request)
    git("clean", "-q", "-ffdx")
    return worktree.update_record(
        **_build_record_fields(request), set_up="", placed_files=(), nested_repositories=(), ended_at_ms=None, why=""
    )


def _check_out(repository: GitRepository, git: Git, request: WorktreeRequest) -> None:
    """Check out its new branch; commits on an earlier branch of that name are preserved."""
    if request.branch is None:
        git("checkout", "-q", "-f", "--detach", request.commit, wait_for_locks=True)
        return
    over = ("checkout", "-q", "-f", "--no-track")
    try:
        git(*over, "-b", request.branch, request.commit, wait_for_locks=True)
    except GitFailed as failed:
        if "already exists" not in failed.stderr:
            raise
        _preserve_branch(repository, request)
        git(*over, "-B", request.branch, request.commit, wait_for_locks=True)


def _preserve_branch(repository: GitRepository, request: WorktreeRequest) -> bool:
    """Preserve a branch of that name; returns whether there is one."""
    tip = request.branch and repository.commit(f"refs/heads/{request.branch}")
    if tip:
        preserve_commits(repository.git, request.name, tip, target=request.commit)
    return bool(tip)


# ---- a new one


def _add_worktree(repository: GitRepository, path: Path, request: WorktreeRequest) -> Worktree:
    clear_folder(path)
    where = ("--no-track", "-B", request.branch) if request.branch else ("--detach",)
    with repository.locked() as git:
        had = _preserve_branch(repository, request)
        try:
            (repository.common / "worktrees").mkdir(exist_ok=True)
            git("worktree", "add", "-q", "--no-checkout", *where, str(path), request.commit, wait_for_locks=True)
            git_dir = Path((path / ".git").read_text().removeprefix("gitdir: ").strip()).resolve()
            note = WorktreeRecord(
                path=path,
                common=repository.common,
                git_dir=git_dir,
                repository=hide_credentials(request.repository_name),
            )
            worktree = Worktree(repository, note).update_record(**_build_record_fields(request))
            repair_git_link(worktree)
        except BaseException:
            roll_back(git, path)
            if request.branch and not had:
                with suppress(GitFailed):
                    git("update-ref", "-d", f"refs/heads/{request.branch}", request.commit)
            raise
    try:
        if request.sparse:
            with repository.locked() as git:  # it writes the repository's configuration
                _allow_own_settings(git)
                inside = git.in_folder(path, git_dir)
                inside("sparse-checkout", "set", "--stdin", input="".join(f"{each}\n" for each in request.sparse))
        worktree.git("reset", "-q", "--hard", wait_for_locks=True)
        fill_submodules(worktree.git, repository.modules)
    except BaseException:
        remove_worktree(worktree, request.commit)
        raise
    return worktree


def _allow_own_settings(git: Git) -> None:
    """Enable settings per worktree. That a repository is bare becomes a setting of its own folder alone."""
    shared = ("config", "--file", str(git.folder / "config"))
    if git.answers(*shared, "--type=bool", "--get", "extensions.worktreeConfig") == "true":
        return
    if git.answers(*shared, "--type=bool", "--get", "core.bare") == "true":
        git("config", "--file", str(git.folder / "config.worktree"), "core.bare", "true", wait_for_locks=True)
        git(*shared, "--unset", "core.bare", wait_for_locks=True)
    git(*shared, "extensions.worktreeConfig", "true", wait_for_locks=True)


def _build_record_fields(request: WorktreeRequest) -> dict[str, object]:
    return {
        "run": request.name,
        "branch": request.branch,
        "base": request.commit,
        "repository": hide_credentials(request.repository_name),
        "worker": request.worker,
        "holder": _get_process_name(),
        "state": "open",
        "made_at_ms": wall_ms(),
    }


def _get_process_name() -> str:
    return process_tree.get_process_name(os.getpid())
