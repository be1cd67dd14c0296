"""Preserves unmerged work: before a worktree or a branch is removed, commits that only it holds get a ref.

Each run has one, `refs/agentq/<run>`. New commits are added to it: where neither contains the other, a commit joins
them. Uncommitted changes are committed first.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from agentq.worker.workspace.git.git_command import Git, GitFailed
from agentq.worker.workspace.git.repository import GitRepository

PRESERVED_REFS = "refs/agentq/"
UPDATE_TRIES_MAX = 20
AGENTQ_IDENTITY = {
    f"GIT_{role}_{what}": value
    for role in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "agentq"), ("EMAIL", "agentq@localhost"))
}
"""The author of commits that agentq makes only to preserve content."""


def get_preserved_ref(run: str) -> str:
    """The ref of a run."""
    return f"{PRESERVED_REFS}{run}"


def preserve_commits(git: Git, run: str, *commits: str, target: str | None = None) -> str | None:
    """Make commits reachable, from the target or from the run's ref; returns that ref's commit."""
    ref = get_preserved_ref(run)
    if all(commit == target for commit in commits):
        return None
    for _ in range(UPDATE_TRIES_MAX):
        before = git.answers("rev-parse", "--verify", "--quiet", ref)
        held = [each for each in (target, before) if each]
        heads = [each for each in dict.fromkeys(commits) if not any(git.is_ancestor(each, holder) for holder in held)]
        heads = [each for each in heads if not any(each != other and git.is_ancestor(each, other) for other in heads)]
        if not heads:
            return before
        if before and not git.is_ancestor(before, heads[-1]):
            heads.insert(0, before)
        after = heads[0] if len(heads) == 1 else _join_commits(git, run, heads)
        try:
            git("update-ref", "-m", "agentq: sheltered", ref, after, before or "0" * len(after), wait_for_locks=True)
        except GitFailed:
            if git.answers("rev-parse", "--verify", "--quiet", ref) == before:
                raise
        else:
            return after
    raise GitFailed(f"{ref} is changed all the time by somebody else.")


def _join_commits(git: Git, run: str, heads: list[str]) -> str:
    parents = [word for head in heads for word in ("-p", head)]
    message = f"What is left of {run}, kept together\n"
    return git("commit-tree", *parents, f"{heads[-1]}^{{tree}}", input=message, identity=AGENTQ_IDENTITY).strip()


def commit_snapshot(git: Git, run: str, *, without: Iterable[str] = ()) -> str | None:
    """A commit of everything uncommitted in a worktree, conflicts included; None if there is nothing.

    Neither its branch nor its index changes. Ignored files are not included.
    """
    assert git.git_dir is not None
    index = git.git_dir / "agentq-index"
    settings = {"GIT_INDEX_FILE": str(index)}
    try:
        if (git.git_dir / "index").exists():
            shutil.copyfile(git.git_dir / "index", index)
        add_all_files(git, settings=settings, without=without)
        tree = git("write-tree", settings=settings).strip()
    finally:
        index.unlink(missing_ok=True)
        index.with_name("agentq-index.lock").unlink(missing_ok=True)
    head = git.answers("rev-parse", "--verify", "--quiet", "HEAD")
    if tree == (git("rev-parse", f"{head}^{{tree}}").strip() if head else write_empty_tree(git)):
        return None
    parents = ("-p", head) if head else ()
    return git("commit-tree", *parents, tree, input=f"What {run} had not committed\n", identity=AGENTQ_IDENTITY).strip()


def write_empty_tree(git: Git) -> str:
    return git("hash-object", "-t", "tree", "--stdin").strip()


def add_all_files(git: Git, *, settings: dict[str, str] | None = None, without: Iterable[str] = ()) -> list[str]:
    """Add all files of a worktree to an index, except ignored files and some paths.

    Repositories made within it are left out; returns their paths.
    """
    assert git.work_tree is not None
    nested: list[str] = []
    while True:
        left_out = [f":(exclude,top,literal){path}" for path in (*without, *nested) if _is_inside(git.work_tree, path)]
        try:
            git("add", "-A", "--", ":/", *left_out, settings=settings or {}, wait_for_locks=True)
        except GitFailed:
            empty = [path for path in find_nested_repositories(git) if path not in nested]
            if not empty:
                raise
            nested += empty
        else:
            return nested


def _is_inside(folder: Path, path: str) -> bool:
    """Whether no link on the way leads outside; git refuses paths beyond one."""
    return not any((folder / above).is_symlink() for above in Path(path).parents)


def find_nested_repositories(git: Git) -> list[str]:
    """Repositories that are new in a worktree and no submodules."""
    assert git.work_tree is not None
    listed = git("ls-files", "-o", "-z", "--exclude-standard", "--directory", "--no-empty-directory")
    found = [path.rstrip("/") for path in listed.split("\0") if path.endswith("/")]
    return [path for path in found if os.path.lexists(Path(git.work_tree, path, ".git"))]


def push_preserved(repository: GitRepository, run: str) -> None:
    """Push a run's ref to the remote, joined with what another host has preserved there."""
    ref = get_preserved_ref(run)
    for last in (False, True):
        try:
            repository.git.push(repository.remote, f"{ref}:{ref}")
        except GitFailed:
            if last or fetch_preserved(repository, run) is None:
                raise
        else:
            return


def fetch_preserved(repository: GitRepository, run: str) -> str | None:
    """Fetch what another host preserved of a run; None if there is nothing."""
    ref = get_preserved_ref(run)
    fetched_ref = f"refs/agentq-fetched/{run}"
    try:
        repository.git(
            "fetch", "-q", "--no-tags", "--no-write-fetch-head", repository.remote, f"+{ref}:{fetched_ref}", remote=True
        )
    except GitFailed as failed:
        if "find remote ref" in failed.stderr:
            return None
        raise
    commit = repository.git("rev-parse", "--verify", fetched_ref).strip()
    preserve_commits(repository.git, run, commit)
    repository.git("update-ref", "-d", fetched_ref, wait_for_locks=True)
    return commit
