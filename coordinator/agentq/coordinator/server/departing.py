"""A client that goes away while something is waited for: nobody is there any more for whom it could be done."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from starlette.requests import Request


@asynccontextmanager
async def departing(request: Request) -> AsyncIterator[asyncio.Future[None]]:
    """Done when the client is gone. Its body must have been read, or be of no interest."""

    async def leave() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    gone = asyncio.ensure_future(leave())
    try:
        yield gone
    finally:
        gone.cancel()
        with suppress(asyncio.CancelledError):
            await gone
