"""Checks merged work in the worktree for merges, which contains the merged state and nothing else. Ignored files stay
from one check to the next only if the run says so.
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
    """Checks commits for one run. `open_worktree` returns the worktree, at any commit."""

    def __init__(
        self,
        workspace: WorkspaceSpec,
        commands: WorkspaceCommands,
        open_worktree: Callable[[str], Worktree],
        call_blocking: CallBlocking,
    ) -> None:
        self._workspace = workspace
        self._commands = commands
        self._open_worktree = open_worktree
        self._call_blocking = call_blocking

    async def check(self, commit: str) -> CheckRejected | None:
        """Check a commit; None if it passes."""
        with ExitStack() as held:
            worktree = await self._call_blocking(self._prepare, commit, held)
            if self._workspace.setup:
                result = await self._commands.set_up_in(worktree.path)
                if result.error is not None:
                    return CheckRejected(f"{result.error}, before the check", result.tail[-CHECK_OUTPUT_CHARACTERS:])
            result = await self._commands.check(worktree.path)
        return None if result.error is None else CheckRejected(result.error, result.tail[-CHECK_OUTPUT_CHARACTERS:])

    def _prepare(self, commit: str, held: ExitStack) -> Worktree:
        """Lock the worktree and check out the commit."""
        worktree = self._open_worktree(commit)
        held.enter_context(lock_repository(worktree.git, worktree.record.git_dir, "agentq-merges.lock"))
        worktree = worktree.update_record(state="open", holder=process_tree.get_process_name(os.getpid()))
        drop_locks(worktree)
        worktree.git("checkout", "-q", "-f", "--detach", commit, wait_for_locks=True)
        worktree.git("clean", "-q", "-ffd" if self._workspace.check_ignored == "keep" else "-ffdx")
        fill_submodules(worktree.git, worktree.repository.modules)
        return add_local_files(worktree, self._workspace.copy_files, self._workspace.link_files)
