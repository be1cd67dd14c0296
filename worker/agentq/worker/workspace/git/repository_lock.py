"""A lock for one repository, across all processes of the machine.

Git's own locks make concurrent `worktree add` and configuration writes fail; this one makes them wait. It is held by
every process that has the file open, including a git command whose worker was killed, until it ends.
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
from agentq.worker.workspace.git.git_command import Git, GitCancellation, GitFailed

LOCK_FILE = "agentq.lock"
"""Its name in the repository's git directory."""
LOCK_WAIT_MS = 300_000
LOCK_PAUSE_S = 0.01

_thread_locks: dict[Path, threading.Lock] = {}
"""Locks between the threads of this process: with the file lock alone they would spin."""


@contextmanager
def lock_repository(git: Git, folder: Path, name: str = LOCK_FILE) -> Iterator[Git]:
    """Hold the lock of a file in a folder; git commands inside keep it until they have ended."""
    deadline_ms = monotonic_ms() + LOCK_WAIT_MS
    path = folder / name
    inside = _thread_locks.setdefault(path, threading.Lock())
    while not inside.acquire(timeout=0.2):
        _check_deadline(git.cancellation, path, deadline_ms)
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            _acquire_lock(descriptor, git.cancellation, path, deadline_ms)
            yield git.holding(descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        finally:
            os.close(descriptor)
    finally:
        inside.release()


def _acquire_lock(descriptor: int, cancellation: GitCancellation, path: Path, deadline_ms: int) -> None:
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            cancellation.pause(random.uniform(LOCK_PAUSE_S / 2, LOCK_PAUSE_S))
            _check_deadline(cancellation, path, deadline_ms)
        else:
            return


def _check_deadline(cancellation: GitCancellation, path: Path, deadline_ms: int) -> None:
    cancellation.check()
    if monotonic_ms() >= deadline_ms:
        raise GitFailed(
            f"{path} was locked for {LOCK_WAIT_MS // 1000} s by somebody else; see who holds it with `fuser`."
        )
