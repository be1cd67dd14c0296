"""Ports for runs: free when assigned, and not assigned to another run of this user on this machine.

A port is held by a lock on a byte of one file, which ends with its process. The ports lie below those that systems
assign themselves, so no program gets one by chance.
"""

from __future__ import annotations

import errno
import fcntl
import os
import random
import socket
import tempfile
import threading
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import chain
from pathlib import Path

from agentq.coordinator.errors import AgentqError

FIRST_PORT, LAST_PORT = 20_000, 32_000

_lock = threading.Lock()
_held_ports: set[int] = set()
"""The ports of this process, which its own locks on the file do not exclude."""


class NoFreePort(AgentqError):
    """No port is free on this machine."""


def take_ports(names: Sequence[str]) -> dict[str, int]:
    """Take a port for each name, until `release_ports`."""
    taken: dict[str, int] = {}
    try:
        for name in names:
            taken[name] = _take_port()
    except BaseException:
        release_ports(taken.values())
        raise
    return taken


def release_ports(ports: Iterable[int]) -> None:
    """Release ports for other runs."""
    with _lock:
        for port in list(ports):
            _held_ports.discard(port)
            fcntl.lockf(_open_lock_file(), fcntl.LOCK_UN, 1, port)


def _take_port() -> int:
    start = random.randrange(FIRST_PORT, LAST_PORT)
    with _lock:
        for port in chain(range(start, LAST_PORT), range(FIRST_PORT, start)):
            if port not in _held_ports and _lock_port(port):
                if _is_port_free(port):
                    _held_ports.add(port)
                    return port
                fcntl.lockf(_open_lock_file(), fcntl.LOCK_UN, 1, port)
    raise NoFreePort(f"All ports from {FIRST_PORT} to {LAST_PORT} are taken on this machine.")


def _lock_port(port: int) -> bool:
    try:
        fcntl.lockf(_open_lock_file(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except BlockingIOError:
        return False
    return True


def _is_port_free(port: int) -> bool:
    """Whether a server could listen there, on loopback or on all addresses."""
    for family, address in ((socket.AF_INET, ""), (socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        try:
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                probe.bind((address, port))
        except OSError as error:
            if family == socket.AF_INET6 and error.errno != errno.EADDRINUSE:
                continue  # this machine has no such addresses
            return False
    return True


def _open_lock_file() -> int:
    """Open the lock file. It is never closed: that would release all locks."""
    return _open_file(Path(tempfile.gettempdir(), f"agentq-ports-{os.getuid()}"))


@cache
def _open_file(path: Path) -> int:
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    if os.fstat(file).st_uid != os.getuid():
        raise NoFreePort(f"{path} is somebody else's; remove it.")
    return file
