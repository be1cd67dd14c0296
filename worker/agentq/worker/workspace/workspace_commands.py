"""The commands that a workspace asks for beside the run's own process: its setup, its check, and what comes after the
merge. Each has the run's environment, and where it works.
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
"""How long the command after the merge may take."""


class CommandStopped(Exception):
    """The attempt was stopped while one of them ran."""


class WorkspaceCommands:
    """Of one attempt."""

    def __init__(self, attempt: WorkspaceAttempt, spec: RunSpec, place: RunWorkspace) -> None:
        assert spec.workspace is not None
        self._attempt = attempt
        self._spec = spec
        self._workspace = spec.workspace
        self._place = place

    async def set_up(self) -> None:
        """Before the process begins; a run whose setup fails does not begin."""
        prepared = self._place.prepared
        assert prepared is not None
        if not self._workspace.setup or prepared.setup_done:
            return
        self._attempt.progress("sets up its worktree")
        done = await self.set_up_in(prepared.path)
        if done.error is not None:
            tail = done.tail[-TAIL_CHARACTERS:] or None
            raise NotStarted(Outcome(class_=OutcomeClass.SPAWN, error=done.error, tail=tail))
        await asyncio.to_thread(self._place.note_set_up)

    async def set_up_in(self, folder: Path) -> CommandResult:
        return await self._do("setup", self._workspace.setup, folder, self._workspace.setup_timeout_ms)

    async def check(self, folder: Path) -> CommandResult:
        """The merged work, which stands in that folder."""
        self._attempt.progress(f"is checked on top of {self._workspace.target}")
        return await self._do("check", self._workspace.check, folder, self._workspace.check_timeout_ms)

    async def after_merge(self, commit: str) -> None:
        """What is to be done once the work is in. It is in, whatever comes of this."""
        self._attempt.progress("runs the command after the merge")
        more = {"AGENTQ_COMMIT": commit, "AGENTQ_TARGET": self._workspace.target or ""}
        folder = self._place.path or self._place.repository.common
        await self._do("after_merge", self._workspace.after_merge, folder, AFTER_MERGE_MS, more)

    async def do(self, chore: WorkspaceCommand) -> CommandResult:
        """As it is."""
        done = await self._chores(chore.env).do(chore)
        if done.stopped:
            raise CommandStopped
        return done

    @property
    def folder(self) -> Path:
        """Where the run's process works."""
        assert self._place.path is not None
        return self._place.path

    def chore(
        self,
        what: str,
        argv: Sequence[str],
        folder: Path,
        timeout_ms: int | None,
        beneath: Mapping[str, str] = MappingProxyType({}),
        more: Mapping[str, str] = MappingProxyType({}),
    ) -> WorkspaceCommand:
        """A command in the run's environment, with some variables beneath it, and some above."""
        around, claim = self._attempt.context, self._attempt.claim
        own = {**self._place.variables, "AGENTQ_WORKTREE": str(folder), **more}
        env = around.environment.of(claim, self._spec, own, beneath)
        caps = self._spec.caps or ResourceLimits()
        return WorkspaceCommand(what, argv, env, folder, around.environment.cookie(claim), timeout_ms, caps)

    async def _do(
        self,
        what: str,
        argv: Sequence[str],
        folder: Path,
        timeout_ms: int | None,
        more: Mapping[str, str] = MappingProxyType({}),
    ) -> CommandResult:
        return await self.do(self.chore(what, argv, folder, timeout_ms, {}, more))

    def _chores(self, env: Mapping[str, str]) -> CommandRunner:
        around, claim = self._attempt.context, self._attempt.claim
        return CommandRunner(
            self._attempt.log,
            lambda what: around.log_folder / claim.id / f"{claim.fence}.{what}.log",
            self._attempt.stopped,
            around.environment.secrets(env),
        )
