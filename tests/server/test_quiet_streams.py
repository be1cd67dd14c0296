"""Streams on which nothing happens: they are kept alive, with the place that the reader has come to all the same."""

from __future__ import annotations

import asyncio

import pytest
from servers import Server

from agentq.coordinator.interest import Interest
from agentq.coordinator.run import RunSpec
from agentq.coordinator.server import live
from agentq.coordinator.server.service import Service
from agentq.coordinator.settings import ServerSettings, Settings


def test_the_quiet_is_broken_with_the_place_that_was_come_to(valkey: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "KEEPALIVE_MS", 200)
    service = Service(Settings(url=valkey.url, namespace="quiet"), ServerSettings(duties=False))

    async def heard() -> list[str]:
        service.start()
        stream = live.events(service, Interest(events=("completed",)), await service.feed.places(None))
        first = await anext(stream)
        service.queue.submit(RunSpec(kind="command", argv=["true"]))
        rest = [await asyncio.wait_for(anext(stream), 10) for _ in range(2)]
        await stream.aclose()
        await service.stop()
        return [first, *rest]

    opening, moved, still = asyncio.run(heard())

    assert opening == "retry: 2000\nid: 0-0\n\n"
    assert moved.startswith(": nothing new\nid: 1")
    assert still == ": nothing new\n\n"
