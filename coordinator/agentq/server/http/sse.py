"""Server-sent events: their format and the streaming response.

The `id` of an event is the position after it; a client that reconnects sends it in `Last-Event-ID`, and continues
exactly there. Without events a keep-alive comment is sent, with the position if that has changed. Nothing is buffered
for a client: the next event is built when the last one was sent, and a connection that accepts nothing for a long time
is closed (see `protocol.py`).
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing

from starlette.responses import StreamingResponse

from agentq.coordinator.errors import NotAllowed
from agentq.server.auth.access_control import TokenRecheck

KEEPALIVE_S = 15.0
RETRY_MS = 2_000
"""How long a client should wait before it reconnects."""
DENIED_EVENT = "denied"
"""The last event for a client whose token is no longer valid."""
MEDIA_TYPE = "text/event-stream"


def format_event(data: str, *, name: str = "", event_id: str = "") -> str:
    """One event."""
    lines = [f"data: {line}" for line in data.split("\n")]
    return "\n".join([*_format_fields(name, event_id), *lines, "", ""])


def format_opening(event_id: str = "") -> str:
    """The first lines of a stream: the reconnect time and the position."""
    return "\n".join([f"retry: {RETRY_MS}", *_format_fields("", event_id), "", ""])


def format_keepalive(event_id: str = "") -> str:
    """A comment that keeps the connection alive; with the position, if it has changed."""
    return "\n".join([": nothing new", *_format_fields("", event_id), "", ""])


class SseResponse(StreamingResponse):
    """A streaming response that ends when the client's token is no longer valid."""

    media_type = MEDIA_TYPE

    def __init__(self, events: AsyncGenerator[str], recheck: TokenRecheck) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(_stream_while_allowed(events, recheck), headers=headers)


async def _stream_while_allowed(events: AsyncGenerator[str], recheck: TokenRecheck) -> AsyncGenerator[str]:
    """The events, until the client's token is no longer valid."""
    async with aclosing(events):
        async for each in events:
            try:
                await recheck.check()
            except NotAllowed as refused:
                yield format_event(json.dumps({"detail": str(refused)}), name=DENIED_EVENT)
                return
            yield each


def _format_fields(name: str, event_id: str) -> list[str]:
    return [f"id: {event_id}"] * bool(event_id) + [f"event: {name}"] * bool(name)
