"""Workers of this host whose process is dead, though their lease has not ended yet: their runs go on at once.

That a process is dead is believed only where nothing else is possible: it was started on this machine since the same
boot, in the same namespaces of processes and time, by the same user, and no process has its number that began when it
did. All others are left to the reaper, which goes by the lease: one in a container that only shares the host's name,
one of another user, one on a machine without /proc.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import cache
from pathlib import Path

from agentq.coordinator.lease import oust
from agentq.coordinator.records import Records, WorkerRecord
from agentq.coordinator.store import Store
from agentq.worker import proc
from agentq.worker.tree import Cgroups, sweep

PROCESS = "process"
"""What a worker's record calls the mark of its process."""
WHY = "its worker's process is dead"

Sweep = Callable[[], Awaitable[object]]

_BOOT = "sys/kernel/random/boot_id"
_NAMESPACES = ("pid", "time", "user")


def process_mark() -> dict[str, str]:
    """What a worker's record says of its process: host, number and beginning. Nothing where that is unknown."""
    own = proc.stat(os.getpid())
    return {PROCESS: f"{_host()}/{own.name}"} if _host() and own is not None else {}


def is_dead(mark: str) -> bool:
    """Whether the process with this mark has certainly ended."""
    host, _, name = mark.rpartition("/")
    pid, _, began = name.partition("-")
    if not host or host != _host() or not pid.isdecimal() or not began.isdecimal():
        return False
    one = proc.stat(int(pid))
    return not proc.exists(int(pid)) if one is None else not one.alive or one.began != int(began)


@cache
def _host() -> str:
    """By what process numbers and beginnings are counted here, and whose processes we can end; empty if unknown."""
    with suppress(OSError):
        if os.readlink(f"{proc.FOLDER}/self") != str(os.getpid()):
            return ""  # a /proc of other processes than those that we see
        boot = Path(proc.FOLDER, _BOOT).read_text(encoding="ascii").strip()
        spaces = [os.stat(f"{proc.FOLDER}/self/ns/{space}").st_ino for space in _NAMESPACES if _is_known(space)]
        return "/".join(map(str, (boot, *spaces, os.geteuid())))
    return ""


def _is_known(space: str) -> bool:
    return os.path.exists(f"{proc.FOLDER}/self/ns/{space}")


def dead_workers(records: Records) -> list[WorkerRecord]:
    """The registered workers whose process on this host has ended, one for each partition."""
    return [worker for worker in records.workers() if is_dead(str(worker.identity.about.get(PROCESS, "")))]


async def take_over(store: Store, end_processes: Sweep) -> list[WorkerRecord]:
    """Requeue what dead workers of this host held, after what still runs of it was ended; who they were."""
    dead = await asyncio.to_thread(dead_workers, Records(store))
    if dead:
        await end_processes()
        await asyncio.to_thread(_oust, store, dead)
    return dead


def take_over_here(store: Store, namespace: str) -> list[WorkerRecord]:
    """The same, from a process that is no worker."""
    return asyncio.run(take_over(store, lambda: sweep(namespace, cgroups=Cgroups.found())))


def _oust(store: Store, dead: list[WorkerRecord]) -> None:
    for worker in dead:
        oust(store, worker.partition, worker.id, worker.epoch, WHY)
