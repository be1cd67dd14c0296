"""A fixed number of threads for blocking calls of the server's loop.

`ThreadPoolExecutor` creates several objects with locks for each call, and this none. Measured side by side in one run
of the calls of `agentq bench --only server`, as CPU time of the server for each request: with an executor the server
needs 12 to 16 % more for the calls of runners (two runs on two busy cores, November 2026).
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
"""Calls a blocking function in a thread, and awaits its result."""
QueuedCall = tuple[Callable[[], Any], "asyncio.Future[Any]"]


class ThreadPool:
    """Runs calls for one loop, from `start` to `stop`. The threads are daemons: a process can exit without `stop`."""

    def __init__(self, size: int, name: str) -> None:
        self._size = size
        self._name = name
        self._calls: SimpleQueue[QueuedCall | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Start the threads."""
        for at in range(self._size):
            thread = threading.Thread(target=self._work, name=f"{self._name}_{at}", daemon=True)
            thread.start()
            self._threads.append(thread)

    def call(self, function: Callable[[], T]) -> asyncio.Future[T]:
        """Queue a call; the future gets its result."""
        if not self._threads:
            raise RuntimeError("The thread pool is not running.")
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._calls.put((function, future))
        return future

    def stop(self) -> None:
        """Cancel queued calls, and wait for those under way."""
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
