"""Cancels a wait when the client disconnects."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.requests import Request

DISCONNECT_KEY = "agentq.gone"
"""The key in the request state of the disconnect future."""
BODY_COMPLETE_KEY = "agentq.came"
"""The key in the request state that marks a body as received."""


async def watch_disconnect(request: Request) -> asyncio.Future[None]:
    """A future that is done when the client has disconnected. An unread body is drained first, since it would hide the
    disconnect."""
    if BODY_COMPLETE_KEY not in request.scope["state"]:
        async for _ in request.stream():
            continue
    return _get_disconnect_future(request.scope["state"])


def mark_disconnected(state: dict[str, Any]) -> None:
    """Resolve the disconnect future of a request."""
    disconnected = _get_disconnect_future(state)
    if not disconnected.done():
        disconnected.set_result(None)


def _get_disconnect_future(state: dict[str, Any]) -> asyncio.Future[None]:
    found: asyncio.Future[None] | None = state.get(DISCONNECT_KEY)
    if found is None:
        found = state[DISCONNECT_KEY] = asyncio.get_running_loop().create_future()
    return found
