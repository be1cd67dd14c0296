"""A blocking iterator for an event loop: one thread reads ahead, a bounded way, until whoever reads has enough."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from contextlib import suppress
from typing import Any, TypeVar

AHEAD = 1000
"""Items that are read before somebody takes them."""

T = TypeVar("T")


async def streamed(open_it: Callable[[], Iterator[T]]) -> AsyncIterator[T]:
    """The items of a blocking iterator, which is made and read in a thread of its own."""
    loop = asyncio.get_running_loop()
    items: asyncio.Queue[tuple[T | None, BaseException | None, bool]] = asyncio.Queue()
    reader = _Reader(open_it, lambda item: loop.call_soon_threadsafe(items.put_nowait, item))
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


class _Reader(threading.Thread):
    """Reads one iterator, and closes it in the thread that reads it."""

    def __init__(self, open_it: Callable[[], Iterator[T]], give: Callable[[Any], object]) -> None:
        super().__init__(name="agentq-stream", daemon=True)
        self.room = threading.Semaphore(AHEAD)
        self._open, self._give = open_it, give
        self._stopped = False

    def run(self) -> None:
        items = self._open_or_tell()
        if items is None:
            return
        fault: BaseException | None = None
        try:
            for item in items:
                self.room.acquire()
                if self._stopped:
                    break
                self._tell((item, None, False))
        except Exception as error:  # noqa: BLE001 - it is raised where the items are awaited
            fault = error
        finally:
            if isinstance(items, Generator):
                items.close()
        self._tell((None, fault, True))

    def _open_or_tell(self) -> Iterator[Any] | None:
        try:
            return self._open()
        except Exception as error:  # noqa: BLE001 - it is raised where the items are awaited
            self._tell((None, error, True))
            return None

    def _tell(self, item: Any) -> None:
        # A loop that is closed has nobody in it who reads.
        with suppress(RuntimeError):
            self._give(item)

    def stop(self) -> None:
        """Have the thread end when its iterator says the next thing; nobody waits for that."""
        self._stopped = True
        self.room.release()
