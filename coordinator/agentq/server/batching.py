"""Sends the items of many concurrent requests in shared calls.

Items that arrive while a call is under way go with the next call. A request gets its reply when its own call has
returned, so no request is answered early. An idle server sends an item at once; a busy one makes one round trip for
many items.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from agentq.coordinator.errors import AgentqError

Item = TypeVar("Item")
Reply = TypeVar("Reply")


class Batcher(Generic[Item, Reply]):
    """Calls `send` with up to `items_max` items, whose weights add up to at most `weight_max`; with one at least.

    `send` returns a reply for each item. A reply that is an error is raised for that item alone. If `send` itself
    raises, each item is sent once more by itself, so that a faulty item fails alone; except for `shared_errors`, such
    as an outage of the store, which are raised for all items at once.
    """

    def __init__(
        self,
        send: Callable[[list[Item]], Awaitable[Sequence[Reply | AgentqError]]],
        *,
        items_max: int,
        weight_max: int = 0,
        weigh: Callable[[Item], int] = lambda _: 0,
        shared_errors: tuple[type[Exception], ...] = (),
    ) -> None:
        self._send = send
        self._items_max = items_max
        self._weight_max = weight_max
        self._weigh = weigh
        self._shared_errors = shared_errors
        self._waiting: deque[tuple[Item, asyncio.Future[Reply]]] = deque()
        self._task: asyncio.Task[None] | None = None

    async def __call__(self, item: Item) -> Reply:
        """Send an item with others, and return its reply."""
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
        batch = [self._waiting.popleft()]
        weight = self._weigh(batch[0][0])
        while self._waiting and len(batch) < self._items_max:
            weight += self._weigh(self._waiting[0][0])
            if weight > self._weight_max:
                break
            batch.append(self._waiting.popleft())
        return batch

    async def _send_batch(self, batch: list[tuple[Item, asyncio.Future[Reply]]]) -> None:
        try:
            replies: Sequence[Reply | Exception] = await self._send([item for item, _ in batch])
        except Exception as error:  # noqa: BLE001 - raised for the requests that wait
            if len(batch) > 1 and not isinstance(error, self._shared_errors):
                for each in batch:
                    if not each[1].done():
                        await self._send_batch([each])
                return
            replies = [error] * len(batch)
        for (_, future), reply in zip(batch, replies, strict=True):
            if future.done():
                continue  # the request was cancelled
            if isinstance(reply, Exception):
                future.set_exception(reply)
            else:
                future.set_result(reply)
