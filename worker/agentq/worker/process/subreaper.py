"""Makes the worker a subreaper: orphans of its runs become its children.

So while it lives, everything that its runs started is below it, and one look at its children tells whether a run has
left anything.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
from contextlib import suppress
from functools import cache
from typing import NamedTuple
from weakref import WeakSet

from agentq.worker.process import procfs

_PR_SET_CHILD_SUBREAPER = 36

REAP_INTERVAL_MS = 200
"""How often zombies are reaped while runs execute: each takes a process number, which are few."""

root_processes: dict[int, int] = {}
"""The first processes of live runs, and when they began. `run_process` takes their exit status."""


class Orphans(NamedTuple):
    """Processes that became our children when their parents died."""

    left: list[int]
    reaped: int
    """How many had ended since the last look."""


NO_ORPHANS = Orphans([], 0)
"""There is no orphan, and none ended that may have started another at the last moment."""


def become_subreaper() -> bool:
    """Adopt the orphans of our children; False where the system does not support it."""
    return _become_subreaper(os.getpid())


@cache
def _become_subreaper(_pid: int) -> bool:
    if signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN:
        with suppress(ValueError):  # not in the main thread
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # or exit codes would be lost
    return sys.platform == "linux" and not ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def reap_orphans() -> Orphans | None:
    """List orphans and reap those that have ended, but no child that is awaited here. None: not supported.

    What the worker starts itself is either the first process of a run, or stays in the worker's own session, where no
    run's process ever gets. So the session tells them apart.
    """
    ours = procfs.list_child_pids(os.getpid()) if become_subreaper() else None
    if ours is None:
        return None
    left, reaped, session = [], 0, os.getsid(0)
    for pid in ours:
        one = procfs.read_stat(pid) if pid not in root_processes else None
        if one is None or one.session == session:
            continue
        if one.alive or not _reap_child(pid):
            left.append(pid)
        else:
            reaped += 1
    return Orphans(left, reaped)


def _reap_child(pid: int) -> bool:
    with suppress(ChildProcessError):
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    return True


_reaping_loops: WeakSet[asyncio.AbstractEventLoop] = WeakSet()


def schedule_reaping() -> None:
    """Reap orphans regularly while there are runs: one run may leave thousands before it ends."""
    loop = asyncio.get_running_loop()
    if loop not in _reaping_loops:
        _reaping_loops.add(loop)
        loop.call_later(REAP_INTERVAL_MS / 1000, _reap_again, loop)


def _reap_again(loop: asyncio.AbstractEventLoop) -> None:
    reap_orphans()
    if root_processes:
        loop.call_later(REAP_INTERVAL_MS / 1000, _reap_again, loop)
    else:
        _reaping_loops.discard(loop)
