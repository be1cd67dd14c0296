"""Prepares the workspaces of one worker for attempts, and releases them. Its tasks:

1. Find or clone the repository; refuse clearly where there is none, or no identity for commits.
2. Make the worktree, or reopen that of an earlier attempt, on this host or from another that has pushed it.
3. Add local files; hold its ports as long as the attempt lives.
4. Release it as the run says; see `retention` for what others have left.

All methods block; `call_blocking` runs them in threads of their own.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ParamSpec, TypeVar

from agentq.coordinator.model.workspace import WorkspaceSpec
from agentq.worker.workspace.git.git_command import Git, GitCancellation, GitFailed
from agentq.worker.workspace.git.preserved_refs import fetch_preserved, get_preserved_ref, push_preserved
from agentq.worker.workspace.git.repository import GitRepository, find_repository
from agentq.worker.workspace.git.safe_config import SafeGitConfig
from agentq.worker.workspace.worktree import ports
from agentq.worker.workspace.worktree.creation import WorktreeRequest, make_worktree, reopen_worktree
from agentq.worker.workspace.worktree.local_files import add_local_files, build_workspace_variables, has_unfetched_lfs
from agentq.worker.workspace.worktree.release import ReleaseResult, keep_worktree, release_worktree
from agentq.worker.workspace.worktree.worktree import Worktree, preserve_worktree, to_branch_name
from agentq.worker.workspace.worktree.worktree_record import WorktreeRecord

P = ParamSpec("P")
T = TypeVar("T")

IDLE_WORKTREES_MAX = 8
"""Idle worktrees kept for each repository; each has all its files."""
LFS_POINTERS_NOTE = (
    "files in LFS are only pointers here: it is not set up for the user of the worker, as `git lfs install` does"
)


@dataclass(frozen=True, slots=True)
class PreparedWorktree:
    """A worktree in which a run can start."""

    worktree: Worktree
    ports: Mapping[str, int]
    setup_done: bool
    """The run's setup has succeeded in this tree before."""
    notes: tuple[str, ...] = ()
    """Sentences for the log."""

    @property
    def path(self) -> Path:
        return self.worktree.path

    @property
    def variables(self) -> dict[str, str]:
        """The variables for the run's processes."""
        return build_workspace_variables(self.worktree, self.ports)


@dataclass(slots=True)
class WorkerWorkspaces:
    """Makes and releases the worktrees of one worker."""

    home: Path
    worker: str
    idle_max: int = IDLE_WORKTREES_MAX
    _safe_configs: dict[tuple[bool, bool], SafeGitConfig] = field(default_factory=dict)
    _threads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(32, "agentq-workspace"))

    async def call_blocking(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call in a thread. Also a cancelled caller waits until the call ends: cancel git to hurry it."""
        future = self._threads.submit(call, *args, **kwargs)
        try:
            return await asyncio.shield(asyncio.wrap_future(future))
        except asyncio.CancelledError:
            await asyncio.wait([asyncio.wrap_future(future)])
            raise

    def git(
        self, workspace: WorkspaceSpec, marks: Mapping[str, str], cancellation: GitCancellation | None = None
    ) -> Git:
        """Git for one attempt."""
        key = workspace.trust == "repo", workspace.sign
        safe_config = self._safe_configs.setdefault(key, SafeGitConfig(*key))
        return Git(self.home, safe_config=safe_config, marks=marks, cancellation=cancellation or GitCancellation())

    def prepare(
        self,
        git: Git,
        run: str,
        workspace: WorkspaceSpec,
        *,
        continues: bool = False,
        has_earlier: bool = False,
        base: str | None = None,
    ) -> PreparedWorktree:
        """Prepare a worktree. With `continues`, reopens the tree of an earlier attempt if it is left; `has_earlier`
        says that there was one, and `base` from which commit it began.
        """
        self.home.mkdir(mode=0o700, parents=True, exist_ok=True)
        repository = find_repository(git, workspace.repository, self.home, workspace.remote)
        if workspace.dirty == "refuse":
            repository.check_clean()
        repository.check_identity()
        preserved = _find_preserved(repository, run, base) if continues and has_earlier else None
        notes: list[str] = []
        worktree = reopen_worktree(repository, self.home, run, self.worker) if continues else None
        if worktree is None:
            commit = base if base and preserved else repository.resolved(workspace.base)
            request = WorktreeRequest(
                run, commit, to_branch_name(run), workspace.repository, self.worker, workspace.sparse
            )
            worktree = make_worktree(repository, self.home, request)
            if preserved is not None:
                worktree.git("checkout", "-q", "-f", "--no-track", "-B", to_branch_name(run), preserved)
                notes.append(f"goes on with what is kept of an earlier attempt, {preserved[:12]}")
            elif continues and has_earlier:
                notes.append("what an earlier attempt did is not on this host; beginning anew from the base")
        try:
            worktree = add_local_files(worktree, workspace.copy_files, workspace.link_files)
            notes += [LFS_POINTERS_NOTE] if has_unfetched_lfs(worktree) else []
            held_ports = ports.take_ports(workspace.ports)
        except BaseException:
            self._discard(worktree)
            raise
        return PreparedWorktree(
            worktree, held_ports, worktree.record.set_up == _digest_workspace(workspace), tuple(notes)
        )

    def _discard(self, worktree: Worktree) -> None:
        """Release a worktree that could not be prepared."""
        repository = replace(worktree.repository, git=replace(worktree.repository.git, cancellation=GitCancellation()))
        with suppress(GitFailed, OSError):
            release_worktree(
                self._reread(Worktree(repository, worktree.record)), target=worktree.base, idle_max=self.idle_max
            )

    def reopen(self, repository: GitRepository, run: str) -> PreparedWorktree | None:
        """The worktree that an earlier attempt left on this host, unchanged, for the steps after its process."""
        worktree = reopen_worktree(repository, self.home, run, self.worker)
        return None if worktree is None else PreparedWorktree(worktree, {}, setup_done=True)

    def note_set_up(self, prepared: PreparedWorktree, workspace: WorkspaceSpec) -> None:
        """Record that the setup has succeeded in this tree."""
        prepared.worktree.update_record(set_up=_digest_workspace(workspace))

    def close(
        self, prepared: PreparedWorktree, workspace: WorkspaceSpec, *,
        failed: str | None = None, target: str | None = None, clean_at: str | None = None,
    ) -> ReleaseResult:  # fmt: skip
        """Release it. `failed` is the error of a failed run; see `release_worktree` for the rest."""
        ports.release_ports(prepared.ports.values())
        if not prepared.worktree.is_ours():
            return "kept"  # another attempt has it, or has put it aside
        worktree = self._reread(prepared.worktree)
        if workspace.keep == "always" or (failed is not None and workspace.keep == "failed"):
            keep_worktree(worktree, failed or "the run asks for it")
            return "kept"
        return release_worktree(worktree, target=target, clean_at=clean_at, idle_max=self.idle_max)

    def hand_over(self, prepared: PreparedWorktree, *, why: str = "", push: bool = True) -> None:
        """Leave it for another attempt, here or on another host. `why` says what has failed."""
        ports.release_ports(prepared.ports.values())
        if not prepared.worktree.is_ours():
            return
        worktree = self._reread(prepared.worktree)
        if push and worktree.repository.is_copy:
            push_worktree(worktree)
        worktree.update_record(holder="", why=why)

    @staticmethod
    def _reread(worktree: Worktree) -> Worktree:
        """The worktree with its record as it is now."""
        note = WorktreeRecord.read(worktree.record.file)
        return Worktree(worktree.repository, note) if note is not None else worktree


def push_worktree(worktree: Worktree) -> None:
    """Preserve what only it holds, and push that for other hosts."""
    preserve_worktree(worktree)
    if worktree.repository.commit(get_preserved_ref(worktree.record.run)):
        push_preserved(worktree.repository, worktree.record.run)


def _find_preserved(repository: GitRepository, run: str, base: str | None) -> str | None:
    """What an earlier attempt preserved, here or by another host, if it descends from the base."""
    kept = fetch_preserved(repository, run) if repository.is_copy else None
    kept = kept or repository.commit(get_preserved_ref(run))
    if kept is None or base is None or repository.commit(base) is None:
        return None
    return kept if repository.git.is_ancestor(base, kept) else None


def _digest_workspace(workspace: WorkspaceSpec) -> str:
    content = json.dumps([list(workspace.setup), list(workspace.copy_files), list(workspace.link_files)])
    return hashlib.blake2b(content.encode(), digest_size=8).hexdigest()
