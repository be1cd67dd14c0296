"""The threads in which a server calls what blocks: a fixed number, each of which takes the next call that waits.

Those of the standard library make three objects with locks for each call, which this needs none of.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")

CallInThread = Callable[..., Awaitable[Any]]
"""Has a function that blocks called in a thread, and awaits its result."""
QueuedCall = tuple[Callable[[], Any], "asyncio.Future[Any]"]


class ThreadPool:
    """Does calls for one loop, until it is told to end. Nobody waits for them where a process ends without that."""

    def __init__(self, size: int, name: str) -> None:
        self._size = size
        self._name = name
        self._calls: SimpleQueue[QueuedCall | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """From now on."""
        for at in range(self._size):
            thread = threading.Thread(target=self._work, name=f"{self._name}_{at}", daemon=True)
            thread.start()
            self._threads.append(thread)

    def call(self, function: Callable[[], T]) -> asyncio.Future[T]:
        """Have it done."""
        if not self._threads:
            raise RuntimeError("The thread pool is not running.")
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._calls.put((function, future))
        return future

    def stop(self) -> None:
        """Begin no more, and return when what is under way is done."""
        with suppress(Empty):
            while (call := self._calls.get_nowait()) is not None:
                call[1].cancel()
        threads, self._threads = self._threads, []
        for _ in threads:
            self._calls.put(None)
        for thread in threads:
            thread.join()

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            function, future = call
            if not future.cancelled():
                _run_call(function, future)
            del call, function, future  # keeps no reference while idle


def _run_call(function: Callable[[], T], future: asyncio.Future[T]) -> None:
    try:
        resolve = partial(_resolve_future, future, function())
    except BaseException as fault:  # noqa: BLE001 - raised in the request that waits
        resolve = partial(_resolve_future, future, None, fault)
    future.get_loop().call_soon_threadsafe(resolve)


def _resolve_future(future: asyncio.Future[Any], reply: Any, fault: BaseException | None = None) -> None:
    if future.done():
        return  # the request was cancelled
    if fault is None:
        future.set_result(reply)
    else:
        future.set_exception(fault)
