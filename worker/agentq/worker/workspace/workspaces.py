"""The workspaces of one worker: prepared for an attempt, and closed after it. Its tasks:

1. Find the repository, or copy it; say clearly where there is none, or nobody's name for the commits.
2. Make the worktree, or go on in that of an earlier attempt, be it on this host or on another that has pushed it.
3. Furnish it; hold its ports as long as the attempt lives.
4. Be done with it as the run says, and look after what others have left (see `retention`).

All of it blocks; `calling` has it done in threads of its own.
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
"""Worktrees of one repository that wait for another run; each has all its files."""
LFS_POINTERS_NOTE = (
    "files in LFS are only pointers here: it is not set up for the user of the worker, as `git lfs install` does"
)


@dataclass(frozen=True, slots=True)
class PreparedWorktree:
    """A worktree in which a run can begin."""

    worktree: Worktree
    ports: Mapping[str, int]
    setup_done: bool
    """What the run asks for has succeeded in this very tree before."""
    notes: tuple[str, ...] = ()
    """What the log should say."""

    @property
    def path(self) -> Path:
        return self.worktree.path

    @property
    def variables(self) -> dict[str, str]:
        """What the run's processes are told."""
        return build_workspace_variables(self.worktree, self.ports)


@dataclass(slots=True)
class WorkerWorkspaces:
    """See above."""

    home: Path
    worker: str
    idle_max: int = IDLE_WORKTREES_MAX
    _safe_configs: dict[tuple[bool, bool], SafeGitConfig] = field(default_factory=dict)
    _threads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(32, "agentq-workspace"))

    async def call_blocking(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Have something done in a thread. It is awaited to its end, also by who is cancelled: pull its leash."""
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
        """Have a worktree ready. With `same`, the tree of an earlier attempt is gone on with, if there is any left;
        `earlier` says that there was one, and `base` from which commit it was begun.
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
        """Nothing can be done in it, and nobody is to find it as if somebody had."""
        repository = replace(worktree.repository, git=replace(worktree.repository.git, cancellation=GitCancellation()))
        with suppress(GitFailed, OSError):
            release_worktree(
                self._reread(Worktree(repository, worktree.record)), target=worktree.base, idle_max=self.idle_max
            )

    def reopen(self, repository: GitRepository, run: str) -> PreparedWorktree | None:
        """The worktree that an earlier attempt left on this host, as it is, for what comes after its process."""
        worktree = reopen_worktree(repository, self.home, run, self.worker)
        return None if worktree is None else PreparedWorktree(worktree, {}, setup_done=True)

    def note_set_up(self, prepared: PreparedWorktree, workspace: WorkspaceSpec) -> None:
        """Note that the setup has succeeded: it need not be done again in the same tree."""
        prepared.worktree.update_record(set_up=_digest_workspace(workspace))

    def close(
        self, prepared: PreparedWorktree, workspace: WorkspaceSpec, *,
        failed: str | None = None, target: str | None = None, clean_at: str | None = None,
    ) -> ReleaseResult:  # fmt: skip
        """Be done with it. `failed` says how, if the run has; see `closing.close` for the rest."""
        ports.release_ports(prepared.ports.values())
        if not prepared.worktree.is_ours():
            return "kept"  # another attempt has it, or has put it aside
        worktree = self._reread(prepared.worktree)
        if workspace.keep == "always" or (failed is not None and workspace.keep == "failed"):
            keep_worktree(worktree, failed or "the run asks for it")
            return "kept"
        return release_worktree(worktree, target=target, clean_at=clean_at, idle_max=self.idle_max)

    def hand_over(self, prepared: PreparedWorktree, *, why: str = "", push: bool = True) -> None:
        """Stop in the middle: another attempt, here or on another host, is to go on. `why` says what has failed."""
        ports.release_ports(prepared.ports.values())
        if not prepared.worktree.is_ours():
            return
        worktree = self._reread(prepared.worktree)
        if push and worktree.repository.is_copy:
            push_worktree(worktree)
        worktree.update_record(keeper="", why=why)

    @staticmethod
    def _reread(worktree: Worktree) -> Worktree:
        """With its note as it is by now."""
        note = WorktreeRecord.read(worktree.record.file)
        return Worktree(worktree.repository, note) if note is not None else worktree


def push_worktree(worktree: Worktree) -> None:
    """Shelter what it holds, and push that for other hosts."""
    preserve_worktree(worktree)
    if worktree.repository.commit(get_preserved_ref(worktree.record.run)):
        push_preserved(worktree.repository, worktree.record.run)


def _find_preserved(repository: GitRepository, run: str, base: str | None) -> str | None:
    """What is kept of an earlier attempt, here or by another host, that goes on from the base."""
    kept = fetch_preserved(repository, run) if repository.is_copy else None
    kept = kept or repository.commit(get_preserved_ref(run))
    if kept is None or base is None or repository.commit(base) is None:
        return None
    return kept if repository.git.is_ancestor(base, kept) else None


def _digest_workspace(workspace: WorkspaceSpec) -> str:
    content = json.dumps([list(workspace.setup), list(workspace.copy_files), list(workspace.link_files)])
    return hashlib.blake2b(content.encode(), digest_size=8).hexdigest()
