"""Runs the commands of a workspace beside the run's own process: setup, check, and the command after the merge.

They run like the run's process: with its environment and its mark, output drained into its log, a time limit, and ended
with the attempt.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from agentq.coordinator.model.spec import ResourceLimits
from agentq.coordinator.runs.logs import LogChunk, LogStream
from agentq.worker.output.output_pipes import OutputPipes
from agentq.worker.output.secret_values import SecretValues
from agentq.worker.process.run_process import ProcessExit, ProcessLaunch, RunProcess, SpawnFailed

OUTPUT_DRAIN_MS = 2_000
STOP_GRACE_MS = 5_000
"""Time between SIGTERM and SIGKILL for a command that takes too long or whose attempt is stopped."""
SHOWN_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class WorkspaceCommand:
    """One command to run."""

    name: str
    """Its name in the log: `check`."""
    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: Path
    cookie: str
    timeout_ms: int | None = None
    caps: ResourceLimits = field(default_factory=ResourceLimits)
    stdin: bytes = b""
    tap: Callable[[LogStream, bytes], None] | None = None
    """Called with every piece of output."""

    @property
    def shown(self) -> str:
        """The command line as typed in a shell."""
        return shlex.join(self.argv)[:SHOWN_CHARACTERS]


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The result of a command."""

    error: str | None
    """One sentence if it did not succeed."""
    tail: str
    stopped: bool = False
    """It was ended with the attempt; it has not failed."""


class CommandRunner:
    """Runs the commands of one attempt."""

    def __init__(
        self,
        log: Callable[[list[LogChunk]], None],
        log_path: Callable[[str], Path],
        stopped: asyncio.Event,
        secrets: SecretValues | None,
    ) -> None:
        self._log = log
        self._log_path = log_path
        self._stopped = stopped
        self._secrets = secrets

    async def run(self, command: WorkspaceCommand) -> CommandResult:
        """Run a command, from its heading in the log to its end."""
        self._log([LogChunk("note", f"{command.name}: {command.shown}\n")])
        launch = ProcessLaunch(command.argv, command.env, command.cwd, command.cookie, command.caps, command.stdin)
        try:
            process = await RunProcess.spawn(launch, cgroups=None)
        except SpawnFailed as failed:
            return CommandResult(f"the {command.name} could not be started: {failed}", "")
        file = self._log_path(command.name)
        log = self._log if command.tap is not None else self._log_as_stderr
        output = OutputPipes(process.stdout, process.stderr, file, log, command.tap, self._secrets)
        try:
            ended = await self._wait_for_exit(process, command.timeout_ms)
        finally:
            await process.end(0 if self._stopped.is_set() else STOP_GRACE_MS)
            await output.drain(OUTPUT_DRAIN_MS)
        exit_, tail = await process.wait(), output.tail()
        if ended is None and self._stopped.is_set():
            return CommandResult(f"the {command.name} was stopped", tail, stopped=True)
        error = self._describe_failure(command, exit_, late=ended is None)
        output.note(error or f"the {command.name} succeeded")
        return CommandResult(error, tail)

    def _log_as_stderr(self, chunks: list[LogChunk]) -> None:
        """Log stdout as stderr: the run's stdout may be parsed, as an agent's is."""
        self._log([chunk._replace(stream="err") if chunk.stream == "out" else chunk for chunk in chunks])

    async def _wait_for_exit(self, process: RunProcess, timeout_ms: int | None) -> ProcessExit | None:
        """Its exit; None at the timeout, or if the attempt was stopped."""
        ending = asyncio.ensure_future(process.wait())
        stopping = asyncio.ensure_future(self._stopped.wait())
        try:
            timeout = None if timeout_ms is None else timeout_ms / 1000
            await asyncio.wait({ending, stopping}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            return ending.result() if ending.done() else None
        finally:
            stopping.cancel()
            ending.cancel()

    def _describe_failure(self, command: WorkspaceCommand, exit_: ProcessExit, *, late: bool) -> str | None:
        if late:
            return f"the {command.name} took longer than {command.timeout_ms} ms"
        if exit_.signal is not None:
            return f"the {command.name} was killed by signal {exit_.signal}"
        return f"the {command.name} exited with code {exit_.code}" if exit_.code else None
