"""What a workspace needs of the attempt that works in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from agentq.coordinator.errors import AgentqError
from agentq.coordinator.model.spec import Outcome
from agentq.coordinator.runs.logs import LogChunk
from agentq.worker.attempt_context import AttemptContext
from agentq.worker.workspace.merge.merge_queue import MergeWaiter

Answer = TypeVar("Answer")


class WorkspaceAttempt(MergeWaiter, Protocol):
    """An attempt whose process works in a worktree; `RunAttempt` is one."""

    context: AttemptContext

    @property
    def continues_earlier(self) -> bool:
        """Whether it continues what an earlier attempt left."""

    @property
    def continues_later(self) -> bool:
        """Whether another attempt will continue in its worktree."""

    @property
    def superseded(self) -> bool: ...

    def delivers(self, outcome: Outcome) -> bool:
        """Whether the work is done and is to be merged."""

    def expects_changes(self, outcome: Outcome) -> bool:
        """Whether it fails if it changed nothing."""

    async def ask_server(self, ask: Callable[[], Answer]) -> Answer:
        """Ask the server until it answers; raises `NotStarted` once the attempt is stopped."""

    def check_not_stopped(self) -> None:
        """Raise `NotStarted` if the attempt is stopped."""

    def on_refused(self, refusal: AgentqError) -> None:
        """The server refused a step of it."""

    def interrupt(self) -> Outcome:
        """The outcome of an attempt that is stopped before its work is merged."""

    def log(self, chunks: list[LogChunk]) -> None: ...

    def note(self, sentence: str) -> None: ...
