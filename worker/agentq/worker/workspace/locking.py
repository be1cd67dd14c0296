"""One at a time, in one repository, across all processes of the machine.

Git's own locks make it fail where two add worktrees or write the configuration at the same time; this one makes them
wait. It is held by whoever has the file open: also by a command of git's whose worker was killed, until that has ended.
"""

from __future__ import annotations

import fcntl
import os
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agentq.coordinator.clock import monotonic_ms
from agentq.worker.workspace.git import Git, GitFailed, Leash

FILE = "agentq.lock"
"""In the repository's git directory."""
WAIT_MS = 300_000
PAUSE_S = 0.01

_inside: dict[Path, threading.Lock] = {}
"""For the threads of this process: a file's lock would let them all in turn spin."""


@contextmanager
def locked(git: Git, folder: Path, name: str = FILE) -> Iterator[Git]:
    """Alone with what a file in a folder stands for; the git within keeps it as long as a command of it lives."""
    deadline_ms = monotonic_ms() + WAIT_MS
    path = folder / name
    inside = _inside.setdefault(path, threading.Lock())
    while not inside.acquire(timeout=0.2):
        _go_on(git.leash, path, deadline_ms)
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            _lock(descriptor, git.leash, path, deadline_ms)
            yield git.holding(descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        finally:
            os.close(descriptor)
    finally:
        inside.release()


def _lock(descriptor: int, leash: Leash, path: Path, deadline_ms: int) -> None:
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            leash.pause(random.uniform(PAUSE_S / 2, PAUSE_S))
            _go_on(leash, path, deadline_ms)
        else:
            return


def _go_on(leash: Leash, path: Path, deadline_ms: int) -> None:
    leash.check()
    if monotonic_ms() >= deadline_ms:
        raise GitFailed(f"{path} was locked for {WAIT_MS // 1000} s by somebody else; see who holds it with `fuser`.")
