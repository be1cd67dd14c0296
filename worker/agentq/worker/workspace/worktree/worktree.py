"""A worktree: the folder that a run works in, on a branch of its own; found, preserved and removed here.

See `creation` for how one is made. Steps that git cannot do concurrently hold the repository's lock.
"""

from __future__ import annotations

import shutil
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from agentq.coordinator.clock import wall_ms
from agentq.worker.workspace.git import git_files
from agentq.worker.workspace.git.file_changes import list_marked, unhide_changes
from agentq.worker.workspace.git.git_command import Git, GitCancellation, GitFailed
from agentq.worker.workspace.git.git_files import remove_tree
from agentq.worker.workspace.git.preserved_refs import commit_snapshot, find_nested_repositories, preserve_commits
from agentq.worker.workspace.git.repository import GitRepository, is_commit_hash
from agentq.worker.workspace.git.submodules import preserve_submodules
from agentq.worker.workspace.worktree.worktree_record import RECORD_SUFFIX, WorktreeRecord

BRANCH_PREFIX = "agentq/"
MERGES_PREFIX = "merges-"
"""The prefix of the names of worktrees for merges."""
OPERATION_FILES = (
    *("MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "MERGE_MSG", "MERGE_MODE", "SQUASH_MSG", "AUTO_MERGE"),
    *("BISECT_LOG", "BISECT_START", "BISECT_NAMES", "BISECT_TERMS", "BISECT_EXPECTED_REV", "ORIG_HEAD"),
    *("rebase-merge", "rebase-apply", "sequencer"),
)
"""Files that git keeps of an unfinished operation."""


@dataclass(frozen=True, slots=True)
class Worktree:
    """A worktree with its record."""

    repository: GitRepository
    record: WorktreeRecord

    @property
    def path(self) -> Path:
        return self.record.path

    @property
    def base(self) -> str:
        return self.record.base

    @property
    def branch(self) -> str | None:
        return self.record.branch

    @property
    def git(self) -> Git:
        """Git in it, with an explicit git directory: its own files are not trusted."""
        return self.repository.git.in_folder(self.path, self.record.git_dir)

    def is_ours(self) -> bool:
        """Whether this process still holds it: another attempt of the run may have moved it aside."""
        now = WorktreeRecord.read(self.record.file)
        return now is not None and (now.git_dir, now.holder) == (self.record.git_dir, self.record.holder)

    def update_record(self, **changes: object) -> Worktree:
        """The worktree with its record changed and written."""
        return replace(self, record=self.record.updated(**changes))


def to_branch_name(run: str) -> str:
    return f"{BRANCH_PREFIX}{run}"


def get_worktrees_folder(home: Path, repository: GitRepository) -> Path:
    """The folder of a repository's worktrees."""
    return home / "worktrees" / repository.digest


def find_worktree(repository: GitRepository, path: Path) -> Worktree | None:
    """An existing worktree; also where its record is lost, if git knows it."""
    note = WorktreeRecord.read(path.with_name(path.name + RECORD_SUFFIX)) or _rebuild_record(repository, path)
    if note is None or note.common != repository.common or not path.is_dir() or not is_registered(note):
        return None
    return Worktree(repository, note)


def _rebuild_record(repository: GitRepository, path: Path) -> WorktreeRecord | None:
    for own in _find_git_entries(repository.common, path):
        here = repository.git.in_folder(path, own)
        base = here.answers("rev-parse", "--verify", "--quiet", "HEAD^{commit}") or ""
        run, branch = path.name, to_branch_name(path.name)
        return WorktreeRecord(
            path=path, common=repository.common, git_dir=own, repository="", run=run, branch=branch, base=base
        )
    return None


def _find_git_entries(common: Path, path: Path) -> list[Path]:
    """Git's folders for a worktree: usually one."""
    found = []
    for file in (common / "worktrees").glob("*/gitdir"):
        with suppress(OSError):
            if file.read_text().strip() == str(path / ".git"):
                found.append(file.parent)
    return found


def is_registered(note: WorktreeRecord) -> bool:
    """Whether git knows it as recorded."""
    within = note.git_dir.parent == note.common / "worktrees"
    with suppress(OSError):
        return within and (note.git_dir / "gitdir").read_text().strip() == str(note.path / ".git")
    return False


def repair_git_link(worktree: Worktree) -> None:
    """Restore the file by which git finds its directory from there."""
    file = worktree.path / ".git"
    text = f"gitdir: {worktree.record.git_dir}\n"
    with suppress(OSError):
        status = file.lstat()
        if stat.S_ISREG(status.st_mode) and file.read_text() == text:
            return
        if stat.S_ISDIR(status.st_mode):
            return  # it has become a repository of its own
        file.unlink()
    file.write_text(text)


def drop_locks(worktree: Worktree) -> None:
    """Remove locks of a killed git. No process works in it: they have been ended."""
    for name in ("index.lock", "HEAD.lock"):
        git_files.remove_path(worktree.record.git_dir / name)


def move_worktree(worktree: Worktree, path: Path, **changes: object) -> Worktree:
    """Move it with its record; the caller holds the lock. Git finds it by its `gitdir` file, which is changed first: a
    path that does not exist yet is repaired by the next user, and until then only `git worktree prune` would remove it.
    """
    old = worktree.record.file
    (worktree.record.git_dir / "gitdir").write_text(f"{path / '.git'}\n")
    worktree.path.rename(path)
    there = worktree.update_record(path=path, **changes)
    old.unlink(missing_ok=True)
    return there


def roll_back(git: Git, path: Path) -> None:
    """Remove a worktree that is half made or half removed; the caller holds the lock, with git in the repository's
    folder. `git worktree prune` would also forget worktrees on a disk that is away for a while.
    """
    git = replace(git, cancellation=GitCancellation())  # done even after a cancellation
    with suppress(GitFailed):
        git("worktree", "remove", "-f", "-f", str(path))
    clear_folder(path)
    for own in _find_git_entries(git.folder, path):
        shutil.rmtree(own, ignore_errors=True)


def drop_branch(worktree: Worktree, target: str | None = None) -> None:
    """Delete its branch, once its commits are reachable otherwise: it may have been moved meanwhile."""
    if worktree.branch is None:
        return
    git = replace(worktree.repository.git, cancellation=GitCancellation())
    ref = f"refs/heads/{worktree.branch}"
    tip = git.answers("rev-parse", "--verify", "--quiet", ref)
    if tip is None:
        return
    if target is None or tip != worktree.record.settled:
        _preserve_own(worktree, git, [tip], target)
    git("update-ref", "-d", ref, tip, wait_for_locks=True)


def clear_folder(path: Path) -> None:
    """Remove a folder that is no worktree: the rest of a half made or half removed one."""
    path.with_name(path.name + RECORD_SUFFIX).unlink(missing_ok=True)
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.exists():
        remove_tree(path)


# ---- done with


def preserve_worktree(worktree: Worktree, target: str | None = None) -> list[str]:
    """Preserve everything that only it holds; returns what cannot be preserved, for which it must stay."""
    if not worktree.record.run or worktree.record.run.startswith(MERGES_PREFIX):
        return []  # an idle one, or one of merges, which are made of what others hold
    git = worktree.git
    drop_locks(worktree)
    unhide_changes(git, list_marked(git))
    tips = list(_list_worktree_commits(worktree))
    if (made := commit_snapshot(git, worktree.record.run, without=worktree.record.placed_files)) is not None:
        tips.append(made)
    _preserve_own(worktree, git, tips, target)
    held = preserve_submodules(git, worktree.repository.modules, worktree.record.run)
    return [*held, *find_nested_repositories(git), *([".git"] if (worktree.path / ".git").is_dir() else [])]


def _list_worktree_commits(worktree: Worktree) -> Iterator[str]:
    """The commits that it refers to."""
    names = ["HEAD"]
    if worktree.branch:
        names.append(f"refs/heads/{worktree.branch}")
    for name in names:
        if commit := worktree.git.answers("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}"):
            yield commit
    for name in ("rebase-merge/orig-head", "rebase-apply/orig-head", "MERGE_HEAD", "CHERRY_PICK_HEAD"):
        yield from filter(is_commit_hash, git_files.read_text(worktree.record.git_dir / name).split())


def _preserve_own(worktree: Worktree, git: Git, tips: list[str], target: str | None) -> None:
    """Preserve its own commits; its base is not its own while a branch contains it."""
    own = [tip for tip in tips if tip != target and (tip != worktree.base or not _is_on_branch(worktree, git, tip))]
    preserve_commits(git, worktree.record.run, *own, target=target)


def _is_on_branch(worktree: Worktree, git: Git, commit: str) -> bool:
    """Whether another branch or a tag contains the commit."""
    kinds = ("refs/heads", "refs/remotes", "refs/tags")
    refs = git("for-each-ref", f"--contains={commit}", "--format=%(refname)", *kinds)
    return any(ref != f"refs/heads/{worktree.branch}" for ref in refs.split())


def set_idle(worktree: Worktree, target: str | None = None) -> None:
    """Make it idle: everything in it is merged or preserved. Its branch is deleted."""
    folder = worktree.path.parent
    worktree.git("update-ref", "--no-deref", "HEAD", worktree.base, wait_for_locks=True)
    drop_branch(worktree, target)
    with worktree.repository.locked():
        name = next(name for number in range(10_000) if not (folder / (name := f"idle-{number}")).exists())
        gone = {"run": "", "branch": None, "base": "", "settled": "", "placed_files": (), "set_up": ""}
        move_worktree(worktree, folder / name, state="idle", ended_at_ms=wall_ms(), **gone)


def remove_worktree(worktree: Worktree, target: str | None = None) -> None:
    """Remove it and its branch; everything in it is merged or preserved."""
    with worktree.repository.locked() as git:
        roll_back(git, worktree.path)
    drop_branch(worktree, target)
