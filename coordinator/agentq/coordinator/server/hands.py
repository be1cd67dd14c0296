"""The threads in which a server calls what blocks: a fixed number, each of which takes the next call that waits.

Those of the standard library make three objects with locks for each call, which this needs none of.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")

Call = tuple[Callable[[], Any], "asyncio.Future[Any]", asyncio.AbstractEventLoop]


class Hands:
    """Does calls for one loop, until it is told to end. Nobody waits for them where a process ends without that."""

    def __init__(self, number: int, name: str) -> None:
        self._calls: SimpleQueue[Call | None] = SimpleQueue()
        self._threads = [threading.Thread(target=self._work, name=f"{name}_{at}", daemon=True) for at in range(number)]
        self._begun = False

    def call(self, function: Callable[[], T]) -> asyncio.Future[T]:
        """Have it done."""
        if not self._begun:
            self._begun = True
            for thread in self._threads:
                thread.start()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._calls.put((function, future, loop))
        return future

    def end(self) -> None:
        """Begin no more, and return when what is under way is done."""
        with suppress(Empty):
            while (call := self._calls.get_nowait()) is not None:
                call[1].cancel()
        for _ in self._threads:
            self._calls.put(None)
        if self._begun:
            for thread in self._threads:
                thread.join()

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            function, future, loop = call
            try:
                reply, fault = function(), None
            except BaseException as error:  # noqa: BLE001 - it is told to whoever waits
                reply, fault = None, error
            loop.call_soon_threadsafe(_tell, future, reply, fault)
            del call, function, future, reply, fault  # nothing is kept while there is nothing to do


def _tell(future: asyncio.Future[Any], reply: Any, fault: BaseException | None) -> None:
    if future.done():
        return  # nobody waits any more
    if fault is None:
        future.set_result(reply)
    else:
        future.set_exception(fault)
