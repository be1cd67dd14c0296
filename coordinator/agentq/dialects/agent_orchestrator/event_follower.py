"""What follows the tides in a task of its own, from the server's start to its end."""

from __future__ import annotations

import asyncio
import logging

from agentq.server.events.hub import EventHub
from agentq.server.thread_pool import CallInThread

OUTAGE_PAUSE_S = 1.0

log = logging.getLogger("agentq.server")


class EventFollower:
    """To be used on the server's loop alone."""

    def __init__(self, event_hub: EventHub, call_in_thread: CallInThread) -> None:
        self.event_hub = event_hub
        self._call_in_thread = call_in_thread
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to follow."""
        self._task = asyncio.create_task(self._follow_forever())

    async def stop(self) -> None:
        """Follow no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _follow_forever(self) -> None:
        while not self.event_hub.closing:
            try:
                await self.follow()
            except Exception:  # whoever waits must not wait for ever because of one event
                log.exception("what happens was not followed for a moment")
                await asyncio.sleep(OUTAGE_PAUSE_S)

    async def follow(self) -> None:
        """What is done until the tides end. It may begin in the middle, and does not know what happened before."""
