"""Checking merged work, in a worktree of the merges' own: nobody works in it, and the check finds the merged state and
nothing else. Ignored files stay from one check to the next, since they are mostly caches.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack
from pathlib import Path

from agentq.coordinator.workspace import Workspace
from agentq.worker.workspace.chores import Chore, Done
from agentq.worker.workspace.furnishing import furnish
from agentq.worker.workspace.git import Git
from agentq.worker.workspace.landing import Rejected
from agentq.worker.workspace.locking import locked
from agentq.worker.workspace.mending import TOLD_CHARACTERS
from agentq.worker.workspace.repository import Repository
from agentq.worker.workspace.submodules import furnish_submodules
from agentq.worker.workspace.worktree import Wanted, Worktree, drop_locks, folder_of, found, made

MERGES = "merges-"
"""What the names of their worktrees begin with."""


def bench(repository: Repository, home: Path, name: str, commit: str, worker: str) -> Worktree:
    """The worktree in which merges into a target are checked, as it is; made where there is none."""
    there = found(repository, folder_of(home, repository) / f"{MERGES}{name}")
    if there is not None:
        return there.noted(state="open", worker=worker)
    return made(repository, home, Wanted(f"{MERGES}{name}", commit, None, worker=worker))


def cleared(worktree: Worktree, commit: str) -> None:
    """Bring it to a commit, with nothing else in it but what the repository ignores."""
    git = worktree.git
    drop_locks(worktree)
    git("checkout", "-q", "-f", "--detach", commit, patient=True)
    git("clean", "-q", "-ffd")
    furnish_submodules(git, worktree.repository.top)


class Checking:
    """Checks commits for one run: with its commands, its environment and its time."""

    def __init__(
        self,
        workspace: Workspace,
        do: Callable[[Chore], Awaitable[Done]],
        chore: Callable[[str, Path], Chore],
        worktree: Callable[[str], Worktree],
    ) -> None:
        self._workspace = workspace
        self._do = do
        self._chore = chore
        self._worktree = worktree

    async def check(self, commit: str) -> Rejected | None:
        """None if all is well."""
        with ExitStack() as held:
            worktree = await asyncio.to_thread(self._prepared, commit, held)
            if self._workspace.setup:
                done = await self._do(self._chore("setup", worktree.path))
                if done.error is not None:
                    return Rejected(f"{done.error} before its check", done.tail[-TOLD_CHARACTERS:])
            done = await self._do(self._chore("check", worktree.path))
        return None if done.error is None else Rejected(done.error, done.tail[-TOLD_CHARACTERS:])

    def _prepared(self, commit: str, held: ExitStack) -> Worktree:
        """Alone with it from now on."""
        worktree = self._worktree(commit)
        held.enter_context(locked(worktree.git, worktree.note.git_dir, "agentq-merges.lock"))
        cleared(worktree, commit)
        return furnish(worktree, self._workspace.copy_files, self._workspace.link_files)
