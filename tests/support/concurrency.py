"""Things done at the same moment, by threads with real connections."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from support.servers import until

T = TypeVar("T")

PATIENCE_S = 30


class ThreadBarrier:
    """Threads that all begin an act at once; the same threads serve round after round."""

    def __init__(self, size: int) -> None:
        self._barrier = threading.Barrier(size)
        self._pool = ThreadPoolExecutor(size)
        self._size = size

    def __enter__(self) -> ThreadBarrier:
        return self

    def __exit__(self, *error: object) -> None:
        self._barrier.abort()
        self._pool.shutdown()

    def at_once(self, *acts: Callable[[], object]) -> list[object]:
        """Do these things, as many as there are threads, at the same moment; raises what one of them raised."""
        assert len(acts) == self._size

        def act_in_turn(act: Callable[[], object]) -> object:
            self._barrier.wait(PATIENCE_S)
            return act()

        futures = [self._pool.submit(act_in_turn, act) for act in acts]
        return [future.result(PATIENCE_S) for future in futures]

    def race(self, number: int, first: Callable[[], object], second: Callable[[], object]) -> list[object]:
        """One round of a race of two. Chance may always prefer the same one, so rounds 0 and 1 are one order each."""
        if number == 0:
            return [first(), second()]
        if number == 1:
            return [second(), first()][::-1]
        return self.at_once(first, second)


@contextmanager
def running(*loops: Callable[[threading.Event], None]) -> Iterator[None]:
    """Loops that go on in threads of their own until the end of the block; raises what one of them raised."""
    stop = threading.Event()
    with ThreadPoolExecutor(len(loops)) as pool:
        futures = [pool.submit(loop, stop) for loop in loops]
        try:
            yield
        finally:
            stop.set()
        until(lambda: all(future.done() for future in futures), "the threads to end", PATIENCE_S)
        for future in futures:
            future.result()


def outcome_of(act: Callable[[], T]) -> Callable[[], T | Exception]:
    """The same act, whose exception is its result."""

    def attempt() -> T | Exception:
        try:
            return act()
        except Exception as fault:  # noqa: BLE001 - whatever it is, the test judges it
            return fault

    return attempt
