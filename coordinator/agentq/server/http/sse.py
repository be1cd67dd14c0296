"""Server-sent events: how they are put into words, and the answer that they are.

An event's `id` is the place after it, which the client sends back in `Last-Event-ID` when it connects again, so that it
goes on exactly there. A line that says nothing goes out when nothing else does, with the place, if that has moved.
Nothing is put by for a client that does not read: the next event is made when the last has gone out, and a connection
that takes nothing for long is closed (see `protocol.py`).
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
"""How long a client is asked to wait before it connects again."""
DENIED_EVENT = "denied"
"""The last event for a client whose token is no longer good."""
MEDIA_TYPE = "text/event-stream"


def format_event(data: str, *, name: str = "", event_id: str = "") -> str:
    """One event."""
    lines = [f"data: {line}" for line in data.split("\n")]
    return "\n".join([*_format_fields(name, event_id), *lines, "", ""])


def format_opening(event_id: str = "") -> str:
    """What goes out first: when to come back, and from where."""
    return "\n".join([f"retry: {RETRY_MS}", *_format_fields("", event_id), "", ""])


def format_keepalive(event_id: str = "") -> str:
    """That there is nothing to say; with the place, if it has moved."""
    return "\n".join([": nothing new", *_format_fields("", event_id), "", ""])


class SseResponse(StreamingResponse):
    """The answer."""

    media_type = MEDIA_TYPE

    def __init__(self, events: AsyncGenerator[str], recheck: TokenRecheck) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(_stream_while_allowed(events, recheck), headers=headers)


async def _stream_while_allowed(events: AsyncGenerator[str], recheck: TokenRecheck) -> AsyncGenerator[str]:
    """The words, until whoever reads them may no longer."""
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
