"""A worker's workspaces for tests, and runs that work in them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from agentq.coordinator.model.workspace import WorkspaceSpec
from agentq.worker.workspace.git.git_command import Git, GitCancellation
from agentq.worker.workspace.merge.work_commit import CommittedWork, build_message, commit_work
from agentq.worker.workspace.workspaces import PreparedWorktree, WorkerWorkspaces


class Workshop:
    """The workspaces of one worker, in a home of its own."""

    def __init__(self, home: Path, worker: str = "w", marks: Mapping[str, str] = MappingProxyType({})) -> None:
        self.home = home
        self._marks = marks
        self.all = WorkerWorkspaces(home, worker)

    def git(self, workspace: WorkspaceSpec, leash: GitCancellation | None = None) -> Git:
        return self.all.git(workspace, self._marks, leash)

    def begin(
        self, repository: Path | str, run: str = "run_1", *, same: bool = False, earlier: bool = False, **fields: Any
    ) -> Job:
        """A run that has what it needs to begin."""
        workspace = WorkspaceSpec(repository=str(repository), **{"base": "main", **fields})
        prepared = self.all.prepare(self.git(workspace), run, workspace, continues=same, has_earlier=earlier)
        return Job(self, run, workspace, prepared)


class Job:
    """A run at work."""

    def __init__(self, workshop: Workshop, run: str, workspace: WorkspaceSpec, prepared: PreparedWorktree) -> None:
        self.run = run
        self.workspace = workspace
        self.prepared = prepared
        self.path = prepared.path
        self._workshop = workshop

    def commit(self, title: str = "Do it", task: str | None = None) -> CommittedWork:
        return commit_work(self.prepared.worktree, build_message(self.run, title, task))

    def close(self, *, failed: str | None = None, clean_at: str | None = None) -> str:
        return self._workshop.all.close(self.prepared, self.workspace, failed=failed, clean_at=clean_at)
