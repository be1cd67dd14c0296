"""The queue of waiting polls: each run that becomes pending wakes one runner that can take it.

A waiting poll costs an entry and a future. One task follows the events: a run that becomes pending wakes the first poll
that serves its lane; a stop order, or the end of a run, wakes the runner that holds it; a changed script, or a gap in
the events, wakes all. A poll that was woken for a lane and ends without claiming wakes the next one.
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
"""Events that may be queued; if there are more, all polls are woken."""
SERVES_CACHE_MAX = 50_000
"""Cached answers to whether a runner serves a lane."""
WATCH_TIMEOUT_S = 3600.0
BATCH_WINDOW_S = 0.002
"""While no poll waits, events are handled together: a new poll reads the store itself."""
RUNS_PER_CALL = 500


log = logging.getLogger("agentq.server")


class WaitingPoll:
    """A poll that waits."""

    __slots__ = ("_wakeup", "identity", "runner", "superseded", "woken_for")

    def __init__(self, runner: str) -> None:
        self.runner = runner
        self.identity: WorkerIdentity | None = None
        """The worker identity of the runner; None until it was read."""
        self.woken_for = ""
        """The lane that it was woken for, or `*` for anything; empty if it was not woken."""
        self.superseded = False
        """A newer poll of the same runner has replaced this one."""
        self._wakeup: asyncio.Future[None] | None = None

    @property
    def is_waiting(self) -> bool:
        return self._wakeup is not None

    async def wait(self, timeout_s: float, *others: asyncio.Future[Any]) -> bool:
        """Wait to be woken or for one of the other futures; whether it was woken."""
        if not (self.woken_for or self.superseded or any(other.done() for other in others)):
            self._wakeup = asyncio.get_running_loop().create_future()
            try:
                await asyncio.wait({self._wakeup, *others}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            finally:
                self._wakeup = None
        return bool(self.woken_for)

    def wake(self, lane: str) -> None:
        self.woken_for = lane
        self.end_wait()

    def end_wait(self) -> None:
        if self._wakeup is not None and not self._wakeup.done():
            self._wakeup.set_result(None)


class PollWaitQueue(EventFollower):
    """The waiting polls of this process. Use it on the server's loop only."""

    def __init__(self, store: NamespaceStore, event_hub: EventHub, call_in_thread: CallInThread) -> None:
        self.store = store
        super().__init__(event_hub, call_in_thread)
        self._polls: OrderedDict[str, WaitingPoll] = OrderedDict()
        self._serves_cache: dict[tuple[str, str], bool] = {}

    @contextmanager
    def enter(self, runner: str) -> Iterator[WaitingPoll]:
        """Add a poll to the queue. A second poll of the same runner replaces the first."""
        before = self._polls.pop(runner, None)
        if before is not None:
            before.superseded = True
            before.end_wait()
        poll = self._polls[runner] = WaitingPoll(runner)
        try:
            yield poll
        finally:
            if self._polls.get(runner) is poll:
                del self._polls[runner]
            if poll.woken_for not in ("", "*"):
                self.wake_for_lane(poll.woken_for)

    def contains(self, runner: str) -> bool:
        """Whether a poll of this runner waits."""
        return runner in self._polls

    def wake_for_lane(self, lane: str) -> None:
        """Wake the first poll that serves the lane and was not woken yet."""
        for poll in self._polls.values():
            if poll.identity is None:
                poll.wake("*")
            elif not poll.woken_for and self._may_serve(poll.identity, lane):
                self._polls.move_to_end(poll.runner)
                poll.wake(lane)
                return

    def wake_runner(self, runner: str) -> None:
        """Wake the poll of this runner."""
        poll = self._polls.get(runner)
        if poll is not None:
            poll.wake("*")

    def wake_all(self) -> None:
        """Wake all polls, because an unknown change has happened."""
        for poll in list(self._polls.values()):
            poll.wake("*")

    def _may_serve(self, identity: WorkerIdentity, lane: str) -> bool:
        known = self._serves_cache.get((identity.id, lane))
        if known is None:
            if len(self._serves_cache) >= SERVES_CACHE_MAX:
                self._serves_cache.clear()
            known = self._serves_cache[identity.id, lane] = bool(select_served_lanes(identity, [lane]))
        return known

    def forget_lanes(self, runner: str) -> None:
        """Drop the cached lanes of a runner whose registration has changed."""
        for key in [key for key in self._serves_cache if key[0] == runner]:
            del self._serves_cache[key]

    async def follow(self) -> None:
        with self.event_hub.watch_all(EVENT_CAPACITY) as watch:
            self.wake_all()
            while not self.event_hub.closing:
                batch = await watch.next(WATCH_TIMEOUT_S)
                if batch.missed:
                    self.wake_all()
                try:
                    await self._wake_for_events(batch.events)
                except AgentqError as fault:
                    # The pending runs are not known: all polls read the store.
                    log.warning(
                        "reading pending runs failed; all polls are woken", extra={"fields": {"error": str(fault)}}
                    )
                    self.wake_all()
                if not any(poll.is_waiting for poll in self._polls.values()):
                    await asyncio.sleep(BATCH_WINDOW_S)
        self.wake_all()

    async def _wake_for_events(self, events: Sequence[Event]) -> None:
        for event in events:
            if event.event == "scripts_changed":
                self.wake_all()
            # The runner has a run to stop; or a run of it has ended, and a slot is free.
            if event.worker and (event.event == "stop_ordered" or event.state not in HELD_STATES):
                self.wake_runner(event.worker)
        pending = [event.run for event in events if event.state is State.PENDING] if self._polls else []
        for at in range(0, len(pending), RUNS_PER_CALL):
            for lane in await self._call_in_thread(self._read_lanes, pending[at : at + RUNS_PER_CALL]):
                self.wake_for_lane(lane)

    def _read_lanes(self, runs: Sequence[str]) -> list[str]:
        """The lanes of those runs that are still pending."""
        key = self.store.key
        commands = [("HMGET", key(partition_of(run), "run", run), "state", "lane") for run in runs]
        found = self.store.connection.commands(commands)
        return [lane for state, lane in found if state == State.PENDING]
