"""A worker's workspaces for tests, and runs that work in them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from agentq.coordinator.workspace import Workspace
from agentq.worker.workspace.committing import Committed, committed, message_of
from agentq.worker.workspace.git import Git, Leash
from agentq.worker.workspace.workspaces import Prepared, Workspaces


class Workshop:
    """The workspaces of one worker, in a home of its own."""

    def __init__(self, home: Path, worker: str = "w", marks: Mapping[str, str] = MappingProxyType({})) -> None:
        self.home = home
        self._marks = marks
        self.all = Workspaces(home, worker)

    def git(self, workspace: Workspace, leash: Leash | None = None) -> Git:
        return self.all.git(workspace, self._marks, leash)

    def begin(
        self, repository: Path | str, run: str = "run_1", *, same: bool = False, earlier: bool = False, **fields: Any
    ) -> Job:
        """A run that has what it needs to begin."""
        workspace = Workspace(repository=str(repository), **{"base": "main", **fields})
        prepared = self.all.prepare(self.git(workspace), run, workspace, same=same, earlier=earlier)
        return Job(self, run, workspace, prepared)


class Job:
    """A run at work."""

    def __init__(self, workshop: Workshop, run: str, workspace: Workspace, prepared: Prepared) -> None:
        self.run = run
        self.workspace = workspace
        self.prepared = prepared
        self.path = prepared.path
        self._workshop = workshop

    def commit(self, title: str = "Do it", task: str | None = None) -> Committed:
        return committed(self.prepared.worktree, message_of(self.run, title, task))

    def close(self, *, failed: str | None = None, clean_at: str | None = None) -> str:
        return self._workshop.all.close(self.prepared, self.workspace, failed=failed, clean_at=clean_at)
