"""What a worker is told when it is started."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from agentq.coordinator.config.settings import WorkerSettings


class WorkerOptions(WorkerSettings):
    """How one worker works: what can be set, and what is only said on the command line."""

    burst: bool = False
    """End when there is nothing left to claim."""
    max_runs: Annotated[int, Field(ge=1)] | None = None
    """End after so many runs."""

    @property
    def is_bounded(self) -> bool:
        """Whether it ends at some time by itself."""
        return self.burst or self.max_runs is not None

    @property
    def idle_worktrees(self) -> int:
        """How many worktrees of a repository it keeps ready: other workers here may take them, too."""
        return max(8, self.slots) if self.worktree_idle is None else self.worktree_idle
