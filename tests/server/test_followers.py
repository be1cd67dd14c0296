"""What follows the tides goes on, whatever comes."""

from __future__ import annotations

import asyncio

import pytest
from support.world import World

from agentq.coordinator.server.foreign import follower
from agentq.coordinator.server.foreign.follower import Follower
from agentq.coordinator.server.tides import Tides


class Clumsy(Follower):
    """Stumbles over the first thing that it sees."""

    def __init__(self, tides: Tides) -> None:
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
    monkeypatch.setattr(follower, "OUTAGE_S", 0.01)

    async def follow() -> int:
        clumsy = Clumsy(Tides(world.store))
        clumsy.start()
        await asyncio.wait_for(clumsy.follows.wait(), 20)
        await clumsy.stop()
        return clumsy.begun

    assert asyncio.run(follow()) == 2
    assert "what is this?" in caplog.text
