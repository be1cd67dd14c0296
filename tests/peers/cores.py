"""Which cores the server and the peers run on, and whether the machine is quiet enough to measure."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

CORES = sorted(os.sched_getaffinity(0))
PLACEMENTS = ("split", "same", "free")


def placement(name: str) -> tuple[set[int], set[int]]:
    """The cores of the server and those of the peers. `split` leaves the first core to the server, `same` puts all on
    the first, and `free` lets the kernel decide."""
    everything = set(CORES)
    if name == "free" or len(CORES) < 2:
        return everything, everything
    if name == "same":
        return {CORES[0]}, {CORES[0]}
    return {CORES[0]}, set(CORES[1:])


@contextmanager
def on_cores(cores: set[int]) -> Iterator[None]:
    """What is started in here runs on these cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


class Quiet:
    """How fast the machine is at the moment, compared with the best it has shown.

    The neighbours of a virtual machine can slow it by a half for seconds, and no counter tells. So a short loop runs on
    each core.
    """

    def __init__(self) -> None:
        self._best = float("inf")

    def speed(self) -> float:
        """1.0 is as fast as ever seen. The slowest core counts."""
        time.sleep(0.15)
        slowest = 0.0
        for core in CORES:
            with on_cores({core}):
                took = min(_loop() for _ in range(3))
            self._best = min(self._best, took)
            slowest = max(slowest, took)
        return self._best / slowest

    def wait(self, limit_s: float = 5.0, enough: float = 0.88) -> float:
        """Wait a while for the machine to be quiet; the speed in the end."""
        end = time.monotonic() + limit_s
        while (speed := self.speed()) < enough and time.monotonic() < end:
            time.sleep(0.2)
        return speed


def _loop() -> float:
    begun = time.perf_counter()
    sum(i * i for i in range(150_000))
    return time.perf_counter() - begun
