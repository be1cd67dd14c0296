"""A run's position in the merge queue of a target.

The queue only saves work: the compare-and-swap of the target decides. So asking twice, or learning late of a turn, does
no harm. An order announces the turn; the attempt also polls, in case the order was lost.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Protocol

from agentq.coordinator.model.workspace import WorkspaceSpec
from agentq.coordinator.runs.merge_queue import MergeQueuePosition, merge_queue_id
from agentq.coordinator.runs.verbs import Claim, RunVerbs
from agentq.worker.workspace.git.repository import GitRepository

QUEUE_POLL_MS = 5_000
"""How often to poll for the turn, at least."""


class MergeWaiter(Protocol):
    """The attempt that waits."""

    claim: Claim
    stopped: asyncio.Event
    merge_signal: asyncio.Event
    """Set when it may be its turn."""

    def ask_until_stopped(self, ask: Callable[[], MergeQueuePosition], /) -> Awaitable[MergeQueuePosition | None]: ...

    def progress(self, sentence: str, /) -> None: ...


class MergeQueuePlace:
    """One run in one merge queue."""

    def __init__(
        self, queue: RunVerbs, waiter: MergeWaiter, workspace: WorkspaceSpec, repository: GitRepository
    ) -> None:
        self._queue = queue
        self._waiter = waiter
        self._target = workspace.target or ""
        self._tag = build_batch_tag(workspace, repository)
        self._offer = "", ""
        self.name = merge_queue_id(repository.identity(shared=workspace.push), self._target)

    async def wait_for_turn(self, commit: str, ref: str) -> bool:
        """Wait for the turn; false if the attempt was stopped before."""
        waiter, reported = self._waiter, -1
        self._offer = commit, f"{ref} {self._tag}"
        while True:
            waiter.merge_signal.clear()
            position = await self._ask_position()
            if position is None or waiter.stopped.is_set():
                return False
            if position.yours:
                return True
            if position.place != reported:
                reported = position.place
                before = "one" if reported == 1 else str(reported)
                waiter.progress(
                    f"waits to be merged into {self._target}, {before} before it; {position.holder} is at it"
                )
            await self._wait()

    async def _ask_position(self) -> MergeQueuePosition | None:
        commit, ref = self._offer
        return await self._waiter.ask_until_stopped(
            lambda: self._queue.line_up(self._waiter.claim, self.name, commit, ref)
        )

    async def companions(self) -> list[tuple[str, str]]:
        """The next runs in the queue that can be merged along."""
        position = await self._ask_position()
        others = []
        for other in position.others if position is not None else ():
            if not self._tag or other.ref.rpartition(" ")[2] != self._tag:
                break
            others.append((other.run, other.commit))
        return others

    async def _wait(self) -> None:
        called = asyncio.ensure_future(self._waiter.merge_signal.wait())
        stopped = asyncio.ensure_future(self._waiter.stopped.wait())
        with suppress(asyncio.TimeoutError):
            timeout = random.uniform(QUEUE_POLL_MS / 2, QUEUE_POLL_MS) / 1000
            await asyncio.wait({called, stopped}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        called.cancel()
        stopped.cancel()


def build_batch_tag(workspace: WorkspaceSpec, repository: GitRepository) -> str:
    """The same for all runs whose work can be stacked and checked together; empty for one that merges alone."""
    if not workspace.check or workspace.merge != "squash" or workspace.sign:
        return ""
    content = [socket.gethostname(), str(repository.common), *workspace.check, "\n", *workspace.setup]
    return hashlib.blake2b("\0".join(content).encode(), digest_size=8).hexdigest()
