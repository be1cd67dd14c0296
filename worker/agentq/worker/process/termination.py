"""Stops and kills processes, and verifies that they are gone.

A signal is always sent through a pidfd opened before the process was checked: if its number was reused since, the
signal goes nowhere.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterable
from contextlib import suppress

from agentq.coordinator.clock import monotonic_ms
from agentq.coordinator.errors import AgentqError
from agentq.worker.process import pidfd, procfs
from agentq.worker.process.procfs import ProcessStat
from agentq.worker.process.subreaper import reap_orphans

KILL_TIMEOUT_MS = 10_000
"""A process that survives SIGKILL for this long hangs in the kernel."""
KILL_ROUND_MS = 500
STOP_ROUNDS_MAX = 100
"""Scans for processes not stopped yet; a forking one is stopped within a few."""
WATCHED_MAX = 64
"""How many processes are awaited at a time; each takes a descriptor."""
POLL_MS = 10
"""Poll interval for processes that cannot be awaited."""

FindProcesses = Callable[[], Iterable[ProcessStat]]
KillGroup = Callable[[], None]


class Unkillable(AgentqError):
    """A process of a run cannot be ended."""


async def kill_all(find: FindProcesses, kill_groups: KillGroup = lambda: None) -> list[ProcessStat]:
    """Stop and kill until a scan finds nothing; returns all that was found. `kill_groups` may kill many at once."""
    ended: dict[str, ProcessStat] = {}
    deadline_ms = monotonic_ms() + KILL_TIMEOUT_MS
    while True:
        found, clean = await _stop_all(find)
        if clean and not found:
            return list(ended.values())
        ended.update((one.name, one) for one in found)
        kill_groups()
        for one in found:
            send_signal(one, signal.SIGKILL)
        await wait_until_gone(found, KILL_ROUND_MS)
        if monotonic_ms() > deadline_ms:
            numbers = ", ".join(str(one.pid) for one in found[:5])
            raise Unkillable(f"Processes hang in the kernel or fork too fast, and cannot be ended: {numbers}.")


async def _stop_all(find: FindProcesses) -> tuple[list[ProcessStat], bool]:
    """Stop all that a scan finds, until a scan finds nothing new: a stopped process cannot fork.

    One that forks and exits all the time may escape every scan, but zombies reaped meanwhile reveal it. Also returns
    whether a scan was clean of both.
    """
    found: dict[str, ProcessStat] = {}
    for _ in range(STOP_ROUNDS_MAX):
        reap_orphans()
        before = len(found)
        for one in find():
            if one.name not in found:
                found[one.name] = one
                send_signal(one, signal.SIGSTOP)
        seen = reap_orphans()
        if len(found) == before and not (seen and seen.reaped):
            return list(found.values()), True
        await asyncio.sleep(0)
    return list(found.values()), False


def send_signal(process: ProcessStat, number: signal.Signals) -> bool:
    """Signal exactly the given process, not a later one with its number; False if it is gone."""
    try:
        end = pidfd.open_pidfd(process.pid)
    except ProcessLookupError:
        return False
    except OSError:  # none left, or none on this system
        end = -1
    try:
        now = procfs.read_stat(process.pid)
        if now is None or now.began != process.began:
            return False
        if end >= 0:
            pidfd.send_signal(end, number)
        else:
            os.kill(process.pid, number)
    except OSError:
        return False
    finally:
        if end >= 0:
            os.close(end)
    return True


async def wait_until_gone(processes: Iterable[ProcessStat], timeout_ms: int) -> bool:
    """Wait until all have ended, as zombies or wholly; False at the timeout."""
    deadline_ms = monotonic_ms() + timeout_ms
    left = list(processes)
    while left := [one for one in left if _is_alive(one)]:
        remaining_ms = deadline_ms - monotonic_ms()
        if remaining_ms <= 0:
            return False
        await _wait_for_first(left[:WATCHED_MAX], remaining_ms)
    return True


def _is_alive(one: ProcessStat) -> bool:
    now = procfs.read_stat(one.pid)
    return now is not None and now.began == one.began and now.alive


async def _wait_for_first(processes: Iterable[ProcessStat], timeout_ms: int) -> None:
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    ends: list[int] = []
    try:
        for one in processes:
            try:
                ends.append(pidfd.open_pidfd(one.pid))
            except ProcessLookupError:
                ended.set()
            except OSError:  # none left, or none on this system
                timeout_ms = min(timeout_ms, POLL_MS)
            else:
                loop.add_reader(ends[-1], ended.set)
        with suppress(TimeoutError):
            await asyncio.wait_for(ended.wait(), timeout_ms / 1000)
    finally:
        for end in ends:
            loop.remove_reader(end)
            os.close(end)
