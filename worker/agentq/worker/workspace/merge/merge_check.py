"""Checking merged work, in a worktree of the merges' own: nobody works in it, and the check finds the merged state and
nothing else. Files that the repository ignores stay from one check to the next only where the run says so.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack

from agentq.coordinator.model.workspace import WorkspaceSpec
from agentq.worker.process import process_tree
from agentq.worker.workspace.git.repository_lock import lock_repository
from agentq.worker.workspace.git.submodules import fill_submodules
from agentq.worker.workspace.merge.landing import CallBlocking, CheckRejected
from agentq.worker.workspace.repair import CHECK_OUTPUT_CHARACTERS
from agentq.worker.workspace.workspace_commands import WorkspaceCommands
from agentq.worker.workspace.worktree.local_files import add_local_files
from agentq.worker.workspace.worktree.worktree import Worktree, drop_locks


class MergeCheck:
    """Checks commits for one run. `bench` gives the worktree, at whatever commit."""

    def __init__(
        self,
        workspace: WorkspaceSpec,
        errands: WorkspaceCommands,
        bench: Callable[[str], Worktree],
        calling: CallBlocking,
    ) -> None:
        self._workspace = workspace
        self._errands = errands
        self._bench = bench
        self._calling = calling

    async def check(self, commit: str) -> CheckRejected | None:
        """None if all is well."""
        with ExitStack() as held:
            worktree = await self._calling(self._prepared, commit, held)
            if self._workspace.setup:
                done = await self._errands.set_up_in(worktree.path)
                if done.error is not None:
                    return CheckRejected(f"{done.error}, before the check", done.tail[-CHECK_OUTPUT_CHARACTERS:])
            done = await self._errands.check(worktree.path)
        return None if done.error is None else CheckRejected(done.error, done.tail[-CHECK_OUTPUT_CHARACTERS:])

    def _prepared(self, commit: str, held: ExitStack) -> Worktree:
        """Alone with it from now on."""
        worktree = self._bench(commit)
        held.enter_context(lock_repository(worktree.git, worktree.note.git_dir, "agentq-merges.lock"))
        worktree = worktree.noted(state="open", keeper=process_tree.get_process_name(os.getpid()))
        drop_locks(worktree)
        worktree.git("checkout", "-q", "-f", "--detach", commit, patient=True)
        worktree.git("clean", "-q", "-ffd" if self._workspace.check_ignored == "keep" else "-ffdx")
        fill_submodules(worktree.git, worktree.repository.modules)
        return add_local_files(worktree, self._workspace.copy_files, self._workspace.link_files)
