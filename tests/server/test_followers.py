"""Followers of events continue after any error."""

from __future__ import annotations

import asyncio

import pytest
from support.world import World

from agentq.dialects.agent_orchestrator import event_follower
from agentq.dialects.agent_orchestrator.event_follower import EventFollower
from agentq.server.events.hub import EventHub


class Clumsy(EventFollower):
    """Stumbles over the first thing that it sees."""

    def __init__(self, tides: EventHub) -> None:
        super().__init__(tides, asyncio.to_thread)
        self.begun = 0
        self.follows = asyncio.Event()

    async def follow(self) -> None:
        self.begun += 1
        if self.begun == 1:
            raise LookupError("what is this?")
        self.follows.set()
        await asyncio.Event().wait()


def test_a_fault_that_nobody_foresaw_ends_no_following(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(event_follower, "OUTAGE_PAUSE_S", 0.01)

    async def follow() -> int:
        clumsy = Clumsy(EventHub(world.store))
        clumsy.start()
        await asyncio.wait_for(clumsy.follows.wait(), 20)
        await clumsy.stop()
        return clumsy.begun

    assert asyncio.run(follow()) == 2
    assert "what is this?" in caplog.text
