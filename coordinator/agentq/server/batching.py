"""Calls of many requests in one: whatever comes while a call is under way goes with the next, together.

Each request is answered when its own call was, so nothing is told before it is done; a server that is idle waits for
nobody, and one that is busy makes one round trip for many.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

Item = TypeVar("Item")
Reply = TypeVar("Reply")


class Batcher(Generic[Item, Reply]):
    """Hands in items together, `most` of them, or as many as weigh `heaviest`, and one at the least."""

    def __init__(
        self,
        send: Callable[[list[Item]], Awaitable[Sequence[Reply]]],
        *,
        items_max: int,
        weight_max: int = 0,
        weigh: Callable[[Item], int] = lambda _: 0,
    ) -> None:
        self._send = send
        self._items_max = items_max
        self._weight_max = weight_max
        self._weigh = weigh
        self._waiting: deque[tuple[Item, asyncio.Future[Reply]]] = deque()
        self._task: asyncio.Task[None] | None = None

    async def __call__(self, item: Item) -> Reply:
        """Hand in an item, and wait for its reply."""
        reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, reply))
        if self._task is None:
            self._task = asyncio.create_task(self._send_all())
        return await reply

    async def _send_all(self) -> None:
        try:
            while self._waiting:
                await self._send_batch(self._take_batch())
        finally:
            self._task = None

    def _take_batch(self) -> list[tuple[Item, asyncio.Future[Reply]]]:
        batch, weight = [self._waiting.popleft()], 0
        weight = self._weigh(batch[0][0])
        while self._waiting and len(batch) < self._items_max:
            weight += self._weigh(self._waiting[0][0])
            if weight > self._weight_max:
                break
            batch.append(self._waiting.popleft())
        return batch

    async def _send_batch(self, batch: list[tuple[Item, asyncio.Future[Reply]]]) -> None:
        try:
            replies = await self._send([item for item, _ in batch])
        except Exception as fault:  # noqa: BLE001 - it is told to whoever waits
            await self._send_each(batch, fault)
            return
        for (_, future), reply in zip(batch, replies, strict=True):
            if not future.done():
                future.set_result(reply)

    async def _send_each(self, batch: list[tuple[Item, asyncio.Future[Reply]]], fault: Exception) -> None:
        """What is wrong with one item is not to be told to the others."""
        for item, future in batch:
            if future.done():
                continue
            if len(batch) == 1:
                future.set_exception(fault)
                continue
            try:
                (reply,) = await self._send([item])
            except Exception as own:  # noqa: BLE001 - the same
                future.set_exception(own)
            else:
                future.set_result(reply)
