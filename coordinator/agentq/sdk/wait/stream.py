"""What comes one by one and is waited for: a blocking iterator that another thread can end, and one for event loops.

In an event loop, one thread reads ahead, a bounded number of items, until the reader leaves.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from contextlib import suppress
from typing import Any, Generic, TypeVar

READ_AHEAD_MAX = 1000
"""The maximum number of items read ahead."""

T = TypeVar("T")


class Stream(Generic[T]):
    """Items as they come. Leaving the loop over them ends the stream."""

    def __init__(self, items: Generator[T], interrupt: Callable[[], None] = lambda: None) -> None:
        self._items = items
        self.interrupt = interrupt
        """End it from another thread, which may wait for the next item."""

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        return next(self._items)

    def close(self) -> None:
        """End it."""
        self._items.close()


async def stream_async(open_it: Callable[[], Stream[T]]) -> AsyncGenerator[T]:
    """The items of a stream, which is opened and read in a thread of its own."""
    loop = asyncio.get_running_loop()
    items: asyncio.Queue[tuple[T | None, BaseException | None, bool]] = asyncio.Queue()
    reader = _StreamReader(open_it, lambda item: loop.call_soon_threadsafe(items.put_nowait, item))
    reader.start()
    try:
        while True:
            item, fault, over = await items.get()
            if fault is not None:
                raise fault
            if over:
                return
            reader.room.release()
            yield item  # type: ignore[misc]
    finally:
        reader.stop()


class _StreamReader(threading.Thread):
    """Reads one stream, and closes it in the thread that reads it."""

    def __init__(self, open_it: Callable[[], Stream[Any]], give: Callable[[Any], object]) -> None:
        super().__init__(name="agentq-stream", daemon=True)
        self.room = threading.Semaphore(READ_AHEAD_MAX)
        self._open, self._give = open_it, give
        self._lock = threading.Lock()
        self._stream: Stream[Any] | None = None
        self._stopped = False

    def run(self) -> None:
        fault: BaseException | None = None
        try:
            self._read()
        except Exception as error:  # noqa: BLE001 - it is raised where the items are awaited
            fault = error
        self._deliver((None, fault, True))

    def _read(self) -> None:
        stream = self._open()
        with self._lock:
            self._stream = stream
        try:
            while not self._stopped:
                try:
                    item = next(stream)
                except StopIteration:
                    return
                self.room.acquire()
                self._deliver((item, None, False))
        finally:
            stream.close()

    def _deliver(self, item: Any) -> None:
        # A closed loop has no reading task.
        with suppress(RuntimeError):
            self._give(item)

    def stop(self) -> None:
        """Tell the thread to end, without waiting for it."""
        with self._lock:
            self._stopped = True
            if self._stream is not None:
                self._stream.interrupt()
        self.room.release()
