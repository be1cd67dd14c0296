"""Where runners wait for something to come: each run that becomes pending wakes one of those that may take it.

A poller that waits is a place in a line and a future; it costs nothing until it is called. One task follows the tides:
a run that becomes pending calls the first in the line that serves its lane, a stop that is ordered or a run that ends
calls the runner that holds it; a script that has changed, and what is not known, calls everybody. Whoever is called and
does not come passes the call on.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from agentq.coordinator.errors import AgentqError
from agentq.coordinator.events.stream import Event
from agentq.coordinator.model.ids import partition_of
from agentq.coordinator.model.lifecycle import HELD_STATES, State
from agentq.coordinator.storage.store import NamespaceStore
from agentq.coordinator.workers.identity import WorkerIdentity, select_served_lanes
from agentq.dialects.agent_orchestrator.event_follower import EventFollower
from agentq.server.events.hub import EventHub
from agentq.server.thread_pool import CallInThread

EVENT_CAPACITY = 5000
"""Events that may wait to be looked at; past them everybody is called."""
SERVES_CACHE_MAX = 50_000
"""Answers to whether somebody serves a lane that are remembered."""
WATCH_TIMEOUT_S = 3600.0
BATCH_WINDOW_S = 0.002
"""Where nobody waits, events are looked at together: whoever comes looks for themselves first."""
RUNS_PER_CALL = 500


log = logging.getLogger("agentq.server")


class WaitingPoll:
    """One runner that waits."""

    __slots__ = ("_bell", "called", "runner", "superseded", "who")

    def __init__(self, runner: str) -> None:
        self.runner = runner
        self.who: WorkerIdentity | None = None
        """The worker that it is; None until that was looked up."""
        self.called = ""
        """The lane that it was called for, or `*` for anything; empty if it was not."""
        self.superseded = False
        """The runner polls anew: this poll is of nobody any more."""
        self._bell: asyncio.Future[None] | None = None

    @property
    def waits(self) -> bool:
        return self._bell is not None

    async def wait(self, timeout_s: float, *others: asyncio.Future[Any]) -> bool:
        """Wait to be called, or for one of the others; whether it was called."""
        if not (self.called or self.superseded or any(other.done() for other in others)):
            self._bell = asyncio.get_running_loop().create_future()
            try:
                await asyncio.wait({self._bell, *others}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            finally:
                self._bell = None
        return bool(self.called)

    def call(self, lane: str) -> None:
        self.called = lane
        self.rouse()

    def rouse(self) -> None:
        if self._bell is not None and not self._bell.done():
            self._bell.set_result(None)


class PollWaitQueue(EventFollower):
    """Everybody who waits in this process. To be used on its loop alone."""

    def __init__(self, store: NamespaceStore, tides: EventHub, elsewhere: CallInThread) -> None:
        self.store = store
        super().__init__(tides, elsewhere)
        self._places: OrderedDict[str, WaitingPoll] = OrderedDict()
        self._serves: dict[tuple[str, str], bool] = {}

    @contextmanager
    def place(self, runner: str) -> Iterator[WaitingPoll]:
        """Stand in the line. A second poll of the same runner takes the place of the first."""
        before = self._places.pop(runner, None)
        if before is not None:
            before.superseded = True
            before.rouse()
        place = self._places[runner] = WaitingPoll(runner)
        try:
            yield place
        finally:
            if self._places.get(runner) is place:
                del self._places[runner]
            if place.called not in ("", "*"):
                self.call(place.called)

    def has(self, runner: str) -> bool:
        """Whether a runner stands in the line."""
        return runner in self._places

    def call(self, lane: str) -> None:
        """A run waits in a lane: call the first that serves it and has not been called."""
        for place in self._places.values():
            if place.who is None:
                place.call("*")
            elif not place.called and self._may_serve(place.who, lane):
                self._places.move_to_end(place.runner)
                place.call(lane)
                return

    def call_runner(self, runner: str) -> None:
        """There is something to tell this runner."""
        place = self._places.get(runner)
        if place is not None:
            place.call("*")

    def call_all(self) -> None:
        """Something has happened, and nobody knows what."""
        for place in list(self._places.values()):
            place.call("*")

    def _may_serve(self, who: WorkerIdentity, lane: str) -> bool:
        known = self._serves.get((who.id, lane))
        if known is None:
            if len(self._serves) >= SERVES_CACHE_MAX:
                self._serves.clear()
            known = self._serves[who.id, lane] = bool(select_served_lanes(who, [lane]))
        return known

    def forget(self, runner: str) -> None:
        """A runner has changed."""
        for key in [key for key in self._serves if key[0] == runner]:
            del self._serves[key]

    async def follow(self) -> None:
        with self.tides.watch_all(EVENT_CAPACITY) as watch:
            self.call_all()
            while not self.tides.closing:
                news = await watch.next(WATCH_TIMEOUT_S)
                if news.missed:
                    self.call_all()
                try:
                    await self._tell(news.events)
                except AgentqError as fault:
                    # What became pending is not known: everybody looks for themselves.
                    log.warning("the lobby lost its place", extra={"fields": {"error": str(fault)}})
                    self.call_all()
                if not any(place.waits for place in self._places.values()):
                    await asyncio.sleep(BATCH_WINDOW_S)
        self.call_all()

    async def _tell(self, events: Sequence[Event]) -> None:
        for event in events:
            if event.event == "scripts_changed":
                self.call_all()
            # It has something to stop; or a run that it held has left its hands, and there is room for another.
            if event.worker and (event.event == "stop_ordered" or event.state not in HELD_STATES):
                self.call_runner(event.worker)
        pending = [event.run for event in events if event.state is State.PENDING] if self._places else []
        for at in range(0, len(pending), RUNS_PER_CALL):
            for lane in await self._elsewhere(self._lanes, pending[at : at + RUNS_PER_CALL]):
                self.call(lane)

    def _lanes(self, runs: Sequence[str]) -> list[str]:
        """The lanes that these runs wait in, those that still do."""
        key = self.store.key
        asked = [("HMGET", key(partition_of(run), "run", run), "state", "lane") for run in runs]
        found = self.store.connection.commands(asked)
        return [lane for state, lane in found if state == State.PENDING]
