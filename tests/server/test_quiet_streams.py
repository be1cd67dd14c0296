"""Streams without events are kept alive, with the position that the reader has reached."""

from __future__ import annotations

import asyncio

import pytest
from support.servers import Server

from agentq.coordinator.config.server_settings import ServerSettings
from agentq.coordinator.config.settings import Settings
from agentq.coordinator.events.event_filter import EventFilter
from agentq.coordinator.model.spec import RunSpec
from agentq.server.events import sse_streams
from agentq.server.service import ServerService

STILL = ": nothing new\n\n"


def test_the_quiet_is_broken_with_the_place_that_was_come_to(valkey: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse_streams, "KEEPALIVE_MS", 200)
    service = ServerService(Settings(url=valkey.url, namespace="quiet"), ServerSettings(duties=False))

    async def heard() -> list[str]:
        service.start()
        stream = sse_streams.stream_events(
            service, EventFilter(events=("completed",)), await service.feed.positions(None)
        )
        first = await anext(stream)
        service.run_verbs.submit(RunSpec(kind="command", argv=["true"]))
        async with asyncio.timeout(60):
            # The feed may not have come to the event yet when the quiet is broken for the first time.
            while (moved := await anext(stream)) == STILL:
                pass
            rest = [moved, await anext(stream)]
        await stream.aclose()
        await service.stop()
        return [first, *rest]

    opening, moved, still = asyncio.run(heard())

    assert opening == "retry: 2000\nid: 0-0\n\n"
    assert moved.startswith(": nothing new\nid: 1")
    assert still == STILL
