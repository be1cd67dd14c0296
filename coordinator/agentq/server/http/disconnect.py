"""A client that goes away while something is waited for: nobody is there any more for whom it could be done."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.requests import Request

DISCONNECT_KEY = "agentq.gone"
"""In the state of a request, once somebody wants to know."""
BODY_COMPLETE_KEY = "agentq.came"
"""In the state of a request all of which has come, so that nobody has to wait for its body."""


async def watch_disconnect(request: Request) -> asyncio.Future[None]:
    """Done when the client is gone. A body that nobody has read would keep the connection from telling that."""
    if BODY_COMPLETE_KEY not in request.scope["state"]:
        async for _ in request.stream():
            continue
    return _get_disconnect_future(request.scope["state"])


def mark_disconnected(state: dict[str, Any]) -> None:
    """Say so to whoever wants to know, of a request with this state."""
    disconnected = _get_disconnect_future(state)
    if not disconnected.done():
        disconnected.set_result(None)


def _get_disconnect_future(state: dict[str, Any]) -> asyncio.Future[None]:
    found: asyncio.Future[None] | None = state.get(DISCONNECT_KEY)
    if found is None:
        found = state[DISCONNECT_KEY] = asyncio.get_running_loop().create_future()
    return found
