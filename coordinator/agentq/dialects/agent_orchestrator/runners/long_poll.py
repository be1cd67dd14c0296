"""Holds the polls of runners until there is an answer. An answer has exactly one subject.

1. Nothing is claimed for a client that has disconnected: this is checked before the claim, and a run that was claimed
   at that moment is handed back. A run whose answer was lost is sent again with the next poll (see poll_answer.py).
2. While the store cannot be reached the poll is held and finally answered 204, because a runner that is refused three
   times in a row gives up for good.
3. A poll is held for at most 30 s, since clients give up after 35 s.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress

from agentq.coordinator.clock import monotonic_ms
from agentq.coordinator.errors import AgentqError
from agentq.dialects.agent_orchestrator.runners.poll_answer import (
    EmptyPollAnswer,
    PollAnswer,
    PollBody,
    PollDecider,
    PollRequest,
    PollResult,
)
from agentq.dialects.agent_orchestrator.runners.registry import ARRIVING_FIELD, RunnerNotRegistered, RunnerRegistry
from agentq.dialects.agent_orchestrator.runners.wait_queue import PollWaitQueue, WaitingPoll
from agentq.server.batching import Batcher
from agentq.server.http.problems import Denied
from agentq.server.thread_pool import CallInThread

OUTAGE_PAUSE_MS = 500
"""How long a poll waits before it tries again a store that could not be reached."""
HOLD_FRACTION_MIN = 0.9
"""The smallest part of its time for which a poll is held."""
POLL_GRACE_MS = 5_000
"""How long after its time a poll still counts as held, on any server."""

POLLS_PER_BATCH = 100
"""The most polls that share one call."""

AccessCheck = Callable[[], Awaitable[None]]

log = logging.getLogger("agentq.server")


class LongPolls:
    """Holds the polls of this process."""

    def __init__(
        self,
        runner_registry: RunnerRegistry,
        poll_decider: PollDecider,
        waiting_polls: PollWaitQueue,
        call_in_thread: CallInThread,
    ) -> None:
        self.runner_registry = runner_registry
        self._server_liveness = runner_registry.server_liveness
        self.poll_decider = poll_decider
        self.waiting_polls = waiting_polls
        self._first_polls = self._make_batcher()
        self._repeated_polls = self._make_batcher()
        """Apart from the first ones, so that a runner that was woken does not queue behind new polls."""
        self._call_in_thread = call_in_thread

    def _make_batcher(self) -> Batcher[PollRequest, PollAnswer | EmptyPollAnswer]:
        async def decide(requests: list[PollRequest]) -> list[PollResult]:
            return list(await self._call_in_thread(self.poll_decider.decide_batch, requests))

        return Batcher(decide, items_max=POLLS_PER_BATCH, shared_errors=(AgentqError,))

    async def poll(
        self, runner: str, disconnected: asyncio.Future[None], owns: Callable[[str], bool], check: AccessCheck
    ) -> PollBody | None:
        """The answer for the runner; None if there was none in time. `check` refuses a token that was revoked
        meanwhile."""
        # A random part is cut, so that thousands of polls that began together do not end together.
        hold_ms = round(1000 * self.runner_registry.timing.runner_poll_timeout * random.uniform(HOLD_FRACTION_MIN, 1))
        deadline = monotonic_ms() + hold_ms
        with self.waiting_polls.enter(runner) as waiting_poll:
            await self._server_liveness.begin_poll(self._call_in_thread)
            try:
                body = await self._wait_for_answer(waiting_poll, deadline, disconnected, owns, check)
            finally:
                self._server_liveness.end_poll()
            # A poll that was refused left no fields.
            if disconnected.done() and not waiting_poll.superseded and waiting_poll.identity is not None:
                await self._clear_poll_fields(runner)
        return body

    async def _wait_for_answer(
        self,
        poll: WaitingPoll,
        deadline: int,
        disconnected: asyncio.Future[None],
        owns: Callable[[str], bool],
        check: AccessCheck,
    ) -> PollBody | None:
        first = True
        while not (disconnected.done() or poll.superseded):
            woken_for, poll.woken_for = poll.woken_for, ""
            left_ms = deadline - monotonic_ms()
            wait_ms = left_ms
            try:
                if not first:
                    await check()
                request = PollRequest(poll.runner, left_ms + POLL_GRACE_MS if first else 0, owns)
                answer = await (self._first_polls if first else self._repeated_polls)(request)
                poll.identity, first = self.runner_registry.cached_identity(poll.runner), False
            except (RunnerNotRegistered, Denied):
                poll.woken_for = woken_for  # wake the next poll instead
                raise
            except AgentqError as fault:
                # The store is away, or the lease was lost at this moment: try again, without an answer.
                log.debug("a poll is held", extra={"fields": {"runner": poll.runner, "error": str(fault)}})
                wait_ms, answer = min(left_ms, OUTAGE_PAUSE_MS), EmptyPollAnswer()
            except Exception:
                # After three errors in a row the runner would give up for good.
                log.exception("a poll failed", extra={"fields": {"runner": poll.runner}})
                wait_ms, answer = min(left_ms, OUTAGE_PAUSE_MS), EmptyPollAnswer()
            if isinstance(answer, PollAnswer):
                return await self._deliver(poll, answer, disconnected)
            if answer.retry_ms is not None:
                wait_ms = min(wait_ms, answer.retry_ms)
            if left_ms <= 0 or self.waiting_polls.event_hub.closing:
                return None
            await poll.wait(wait_ms / 1000, disconnected)
        return None

    async def _deliver(
        self, poll: WaitingPoll, answer: PollAnswer, disconnected: asyncio.Future[None]
    ) -> PollBody | None:
        # A later poll of the same runner gets the run again if the runner has not begun it.
        if answer.claim is not None and disconnected.done() and not poll.superseded:
            await self._call_in_thread(self.poll_decider.hand_back, poll.runner, answer.claim)
            return None
        return answer.body

    async def _clear_poll_fields(self, runner: str) -> None:
        """After a disconnect, let another process of this identity register at once."""
        with suppress(AgentqError):  # else the note of this poll runs out by itself
            await self._call_in_thread(
                self.runner_registry.set_fields, runner, polls_until_ms="", **{ARRIVING_FIELD: ""}
            )
