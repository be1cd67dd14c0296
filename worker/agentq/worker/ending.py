"""Stopping, killing, and seeing that it is done.

A signal is always sent through a pidfd that was opened before the process was judged: if the number has gone to
another process since, the signal goes nowhere.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterable
from contextlib import suppress

from agentq.coordinator.clock import monotonic_ms
from agentq.coordinator.errors import AgentqError
from agentq.worker import pidfd, proc
from agentq.worker.adoption import orphans
from agentq.worker.proc import Stat

STUBBORN_MS = 10_000
"""A process that SIGKILL has not ended after so long hangs in the kernel."""
ROUND_MS = 500
ROUNDS = 100
"""Looks for processes that have not been stopped yet; one that forks is stopped within a few."""
WATCHED = 64
"""Processes whose end is awaited at a time; each takes a descriptor."""
UNWATCHED_MS = 10
"""How often one is looked at whose end cannot be awaited."""

Find = Callable[[], Iterable[Stat]]
Strike = Callable[[], None]


class Unkillable(AgentqError):
    """A process of a run cannot be ended."""


async def end_all(find: Find, strike: Strike = lambda: None) -> list[Stat]:
    """Stop and kill until a look finds nothing; all that was found. `strike` is what may kill much at one blow."""
    ended: dict[str, Stat] = {}
    deadline_ms = monotonic_ms() + STUBBORN_MS
    while True:
        found, clean = await _stopped(find)
        if clean and not found:
            return list(ended.values())
        ended.update((one.name, one) for one in found)
        strike()
        for one in found:
            send(one, signal.SIGKILL)
        await gone(found, ROUND_MS)
        if monotonic_ms() > deadline_ms:
            numbers = ", ".join(str(one.pid) for one in found[:5])
            raise Unkillable(f"Processes hang in the kernel or fork too fast, and cannot be ended: {numbers}.")


async def _stopped(find: Find) -> tuple[list[Stat], bool]:
    """Stop all that a look finds, until a look finds nothing new: a stopped process cannot fork.

    One that forks and exits all the time may have gone on from every number that a look has seen; it is betrayed by
    the orphans that have ended meanwhile. Says also whether there was a look without any of this.
    """
    found: dict[str, Stat] = {}
    for _ in range(ROUNDS):
        orphans()
        before = len(found)
        for one in find():
            if one.name not in found:
                found[one.name] = one
                send(one, signal.SIGSTOP)
        seen = orphans()
        if len(found) == before and not (seen and seen.reaped):
            return list(found.values()), True
        await asyncio.sleep(0)
    return list(found.values()), False


def send(one: Stat, number: signal.Signals) -> bool:
    """Signal the process that was judged, and no later one of that number; False if it is gone."""
    try:
        end = pidfd.opened(one.pid)
    except ProcessLookupError:
        return False
    except OSError:  # none left, or none on this system
        end = -1
    try:
        now = proc.stat(one.pid)
        if now is None or now.began != one.began:
            return False
        if end >= 0:
            pidfd.send(end, number)
        else:
            os.kill(one.pid, number)
    except OSError:
        return False
    finally:
        if end >= 0:
            os.close(end)
    return True


async def gone(those: Iterable[Stat], patience_ms: int) -> bool:
    """Wait until they have ended, as zombies or wholly; False if some have not in time."""
    deadline_ms = monotonic_ms() + patience_ms
    left = list(those)
    while left := [one for one in left if _lives(one)]:
        remaining_ms = deadline_ms - monotonic_ms()
        if remaining_ms <= 0:
            return False
        await _first_gone(left[:WATCHED], remaining_ms)
    return True


def _lives(one: Stat) -> bool:
    now = proc.stat(one.pid)
    return now is not None and now.began == one.began and now.alive


async def _first_gone(those: Iterable[Stat], patience_ms: int) -> None:
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    ends: list[int] = []
    try:
        for one in those:
            try:
                ends.append(pidfd.opened(one.pid))
            except ProcessLookupError:
                ended.set()
            except OSError:  # none left, or none on this system
                patience_ms = min(patience_ms, UNWATCHED_MS)
            else:
                loop.add_reader(ends[-1], ended.set)
        with suppress(TimeoutError):
            await asyncio.wait_for(ended.wait(), patience_ms / 1000)
    finally:
        for end in ends:
            loop.remove_reader(end)
            os.close(end)
