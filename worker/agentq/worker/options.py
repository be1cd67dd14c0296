"""The options of one worker: settings, and command line flags that are no settings."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from agentq.coordinator.config.settings import WorkerSettings


class WorkerOptions(WorkerSettings):
    """The settings of a worker plus the options that only the command line has."""

    burst: bool = False
    """End when there is nothing left to claim."""
    max_runs: Annotated[int, Field(ge=1)] | None = None
    """End after this many runs."""

    @property
    def is_bounded(self) -> bool:
        """Whether the worker ends by itself at some time."""
        return self.burst or self.max_runs is not None

    @property
    def idle_worktrees(self) -> int:
        """How many idle worktrees of a repository to keep; other workers of this host may use them too."""
        return max(8, self.slots) if self.worktree_idle is None else self.worktree_idle
