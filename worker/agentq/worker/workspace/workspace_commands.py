"""The commands that a workspace runs beside the run's own process: setup, check, and the command after the merge. Each
gets the run's environment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from agentq.coordinator.bounds import TAIL_CHARACTERS
from agentq.coordinator.model.lifecycle import OutcomeClass
from agentq.coordinator.model.spec import Outcome, ResourceLimits, RunSpec
from agentq.worker.attempt_stop import NotStarted
from agentq.worker.workspace.command_runner import CommandResult, CommandRunner, WorkspaceCommand
from agentq.worker.workspace.run_workspace import RunWorkspace
from agentq.worker.workspace.workspace_attempt import WorkspaceAttempt

AFTER_MERGE_MS = 600_000
"""The timeout of the command after the merge."""


class CommandStopped(Exception):
    """The attempt was stopped while a command ran."""


class WorkspaceCommands:
    """The commands of one attempt."""

    def __init__(self, attempt: WorkspaceAttempt, spec: RunSpec, run_workspace: RunWorkspace) -> None:
        assert spec.workspace is not None
        self._attempt = attempt
        self._spec = spec
        self._workspace = spec.workspace
        self._run_workspace = run_workspace

    async def set_up(self) -> None:
        """Run the setup before the process starts; if it fails, the process does not start."""
        prepared = self._run_workspace.prepared
        assert prepared is not None
        if not self._workspace.setup or prepared.setup_done:
            return
        self._attempt.progress("sets up its worktree")
        result = await self.set_up_in(prepared.path)
        if result.error is not None:
            tail = result.tail[-TAIL_CHARACTERS:] or None
            raise NotStarted(Outcome(class_=OutcomeClass.SPAWN, error=result.error, tail=tail))
        await asyncio.to_thread(self._run_workspace.note_set_up)

    async def set_up_in(self, folder: Path) -> CommandResult:
        return await self._build_and_run("setup", self._workspace.setup, folder, self._workspace.setup_timeout_ms)

    async def check(self, folder: Path) -> CommandResult:
        """Check the merged work, which is in that folder."""
        self._attempt.progress(f"is checked on top of {self._workspace.target}")
        return await self._build_and_run("check", self._workspace.check, folder, self._workspace.check_timeout_ms)

    async def after_merge(self, commit: str) -> None:
        """Run the command after the merge. The work stays merged whatever its result."""
        self._attempt.progress("runs the command after the merge")
        overrides = {"AGENTQ_COMMIT": commit, "AGENTQ_TARGET": self._workspace.target or ""}
        folder = self._run_workspace.path or self._run_workspace.repository.common
        await self._build_and_run("after_merge", self._workspace.after_merge, folder, AFTER_MERGE_MS, overrides)

    async def run(self, command: WorkspaceCommand) -> CommandResult:
        """Run a command as it is."""
        result = await self._build_runner(command.env).run(command)
        if result.stopped:
            raise CommandStopped
        return result

    @property
    def folder(self) -> Path:
        """The folder of the run's process."""
        assert self._run_workspace.path is not None
        return self._run_workspace.path

    def build_command(
        self,
        name: str,
        argv: Sequence[str],
        folder: Path,
        timeout_ms: int | None,
        defaults: Mapping[str, str] = MappingProxyType({}),
        overrides: Mapping[str, str] = MappingProxyType({}),
    ) -> WorkspaceCommand:
        """A command in the run's environment, which overrides `defaults` and is overridden by `overrides`."""
        context, claim = self._attempt.context, self._attempt.claim
        variables = {**self._run_workspace.variables, "AGENTQ_WORKTREE": str(folder), **overrides}
        env = context.environment.build(claim, self._spec, variables, defaults)
        caps = self._spec.caps or ResourceLimits()
        return WorkspaceCommand(name, argv, env, folder, context.environment.cookie(claim), timeout_ms, caps)

    async def _build_and_run(
        self,
        name: str,
        argv: Sequence[str],
        folder: Path,
        timeout_ms: int | None,
        overrides: Mapping[str, str] = MappingProxyType({}),
    ) -> CommandResult:
        return await self.run(self.build_command(name, argv, folder, timeout_ms, {}, overrides))

    def _build_runner(self, env: Mapping[str, str]) -> CommandRunner:
        context, claim = self._attempt.context, self._attempt.claim
        return CommandRunner(
            self._attempt.log,
            lambda what: context.log_folder / claim.id / f"{claim.fence}.{what}.log",
            self._attempt.stopped,
            context.environment.secrets(env),
        )
