"""Base class of background tasks that follow events while the server runs."""

from __future__ import annotations

import asyncio
import logging

from agentq.server.events.hub import EventHub
from agentq.server.thread_pool import CallInThread

OUTAGE_PAUSE_S = 1.0

log = logging.getLogger("agentq.server")


class EventFollower:
    """Restarts `follow` after an error. Use it on the server's loop only."""

    def __init__(self, event_hub: EventHub, call_in_thread: CallInThread) -> None:
        self.event_hub = event_hub
        self._call_in_thread = call_in_thread
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the task."""
        self._task = asyncio.create_task(self._follow_forever())

    async def stop(self) -> None:
        """Cancel the task."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _follow_forever(self) -> None:
        while not self.event_hub.closing:
            try:
                await self.follow()
            except Exception:  # an error in one event must not block waiting requests for ever
                log.exception("following events failed; will restart")
                await asyncio.sleep(OUTAGE_PAUSE_S)

    async def follow(self) -> None:
        """Handle events until the hub closes. It may start at any event, without the events before it."""
