"""Checking merged work, in a worktree of the merges' own: nobody works in it, and the check finds the merged state and
nothing else. Files that the repository ignores stay from one check to the next only where the run says so.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack

from agentq.coordinator.workspace import Workspace
from agentq.worker import tree
from agentq.worker.workspace.errands import Errands
from agentq.worker.workspace.furnishing import furnish
from agentq.worker.workspace.landing import Calling, Rejected
from agentq.worker.workspace.locking import locked
from agentq.worker.workspace.mending import TOLD_CHARACTERS
from agentq.worker.workspace.submodules import furnish_submodules
from agentq.worker.workspace.worktree import Worktree, drop_locks


class Checking:
    """Checks commits for one run. `bench` gives the worktree, at whatever commit."""

    def __init__(
        self, workspace: Workspace, errands: Errands, bench: Callable[[str], Worktree], calling: Calling
    ) -> None:
        self._workspace = workspace
        self._errands = errands
        self._bench = bench
        self._calling = calling

    async def check(self, commit: str) -> Rejected | None:
        """None if all is well."""
        with ExitStack() as held:
            worktree = await self._calling(self._prepared, commit, held)
            if self._workspace.setup:
                done = await self._errands.set_up_in(worktree.path)
                if done.error is not None:
                    return Rejected(f"{done.error}, before the check", done.tail[-TOLD_CHARACTERS:])
            done = await self._errands.check(worktree.path)
        return None if done.error is None else Rejected(done.error, done.tail[-TOLD_CHARACTERS:])

    def _prepared(self, commit: str, held: ExitStack) -> Worktree:
        """Alone with it from now on."""
        worktree = self._bench(commit)
        held.enter_context(locked(worktree.git, worktree.note.git_dir, "agentq-merges.lock"))
        worktree = worktree.noted(state="open", keeper=tree.keeper(os.getpid()))
        drop_locks(worktree)
        worktree.git("checkout", "-q", "-f", "--detach", commit, patient=True)
        worktree.git("clean", "-q", "-ffd" if self._workspace.check_ignored == "keep" else "-ffdx")
        furnish_submodules(worktree.git, worktree.repository.modules)
        return furnish(worktree, self._workspace.copy_files, self._workspace.link_files)
