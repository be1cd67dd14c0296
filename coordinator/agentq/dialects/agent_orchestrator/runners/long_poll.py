"""The long poll of a runner: held until there is something to tell, and never answered with more than one thing.

1. Nothing is claimed for a client that has gone: that is looked at before, and what was claimed while it went is handed
   back at once. What is lost on the way all the same is given again with the next poll (see poll_answer.py).
2. While the store cannot be reached the poll is held, and in the end answered 204: a runner that is refused three times
   in a row gives up for good.
3. It is held for 30 s at the most, since clients give up after 35.
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
)
from agentq.dialects.agent_orchestrator.runners.registry import ARRIVING_FACT, RunnerNotRegistered, RunnerRegistry
from agentq.dialects.agent_orchestrator.runners.request_batching import RunnerBatcher
from agentq.dialects.agent_orchestrator.runners.wait_queue import PollWaitQueue, WaitingPoll
from agentq.server.http.problems import Denied
from agentq.server.thread_pool import CallInThread

OUTAGE_PAUSE_MS = 500
"""How long a poll waits before it looks again at a store that could not be reached."""
HOLD_FRACTION_MIN = 0.9
"""The part of its time for which a poll is held at the least."""
POLL_GRACE_MS = 5_000
"""For how long after its time a poll is taken to be under way, wherever it is held."""

AccessCheck = Callable[[], Awaitable[None]]

log = logging.getLogger("agentq.server")


class LongPolls:
    """Holds the polls of this process."""

    def __init__(
        self,
        roster: RunnerRegistry,
        orders: PollDecider,
        lobby: PollWaitQueue,
        rush: RunnerBatcher,
        elsewhere: CallInThread,
    ) -> None:
        self.roster = roster
        self._presence = roster.presence
        self.orders = orders
        self.lobby = lobby
        self._rush = rush
        self._elsewhere = elsewhere

    async def poll(
        self, runner: str, gone: asyncio.Future[None], may_touch: Callable[[str], bool], check: AccessCheck
    ) -> PollBody | None:
        """What the runner is to be told; None if nothing has come in time. `check` refuses who may wait no longer."""
        # Not quite as long for all: thousands who came together do not come again together.
        hold_ms = round(1000 * self.roster.timing.runner_poll_timeout * random.uniform(HOLD_FRACTION_MIN, 1))
        deadline = monotonic_ms() + hold_ms
        with self.lobby.place(runner) as place:
            await self._presence.hold(self._elsewhere)
            try:
                told = await self._next(place, deadline, gone, may_touch, check)
            finally:
                self._presence.release()
            # Who was never let in has not been there.
            if gone.done() and not place.superseded and place.who is not None:
                await self._note_gone(runner)
        return told

    async def _next(
        self,
        place: WaitingPoll,
        deadline: int,
        gone: asyncio.Future[None],
        may_touch: Callable[[str], bool],
        check: AccessCheck,
    ) -> PollBody | None:
        first = True
        while not (gone.done() or place.superseded):
            called, place.called = place.called, ""
            left_ms = deadline - monotonic_ms()
            wait_ms = left_ms
            try:
                if not first:
                    await check()
                found = await self._rush.poll(
                    PollRequest(place.runner, left_ms + POLL_GRACE_MS if first else 0, may_touch), called=not first
                )
                place.who, first = self.roster.who_is(place.runner), False
            except (RunnerNotRegistered, Denied):
                place.called = called  # for whoever stands behind it
                raise
            except AgentqError as fault:
                # The store is away, or the lease was lost at this very moment: it is looked again, and nothing said.
                log.debug("a poll is held", extra={"fields": {"runner": place.runner, "error": str(fault)}})
                wait_ms, found = min(left_ms, OUTAGE_PAUSE_MS), EmptyPollAnswer()
            except Exception:
                # Three answers in a row that say so, and the runner would give up for good.
                log.exception("a poll failed", extra={"fields": {"runner": place.runner}})
                wait_ms, found = min(left_ms, OUTAGE_PAUSE_MS), EmptyPollAnswer()
            if isinstance(found, PollAnswer):
                return await self._delivered(place, found, gone)
            if found.again_ms is not None:
                wait_ms = min(wait_ms, found.again_ms)
            if left_ms <= 0 or self.lobby.tides.closing:
                return None
            await place.wait(wait_ms / 1000, gone)
        return None

    async def _delivered(self, place: WaitingPoll, told: PollAnswer, gone: asyncio.Future[None]) -> PollBody | None:
        # A later poll of the same runner is given what it has not begun.
        if told.claim is not None and gone.done() and not place.superseded:
            await self._elsewhere(self.orders.hand_back, place.runner, told.claim)
            return None
        return told.body

    async def _note_gone(self, runner: str) -> None:
        """The client has gone: another process may take its place at once."""
        with suppress(AgentqError):  # else the note of this poll runs out by itself
            await self._elsewhere(self.roster.note, runner, polls_until_ms="", **{ARRIVING_FACT: ""})
