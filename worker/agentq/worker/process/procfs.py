"""Reads processes from /proc: their numbers, parents, start times and environments.

Any process may end at any moment; every function answers that with an empty result. Without /proc, as on macOS, there
are no processes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache

PROC_FOLDER = "/proc"


@dataclass(frozen=True, slots=True)
class ProcessStat:
    """A process, identified by its number and start time."""

    pid: int
    parent: int
    group: int
    session: int
    began: int
    """In ticks since the machine started."""
    alive: bool
    """False for a zombie, which waits for its parent to reap it."""

    @property
    def name(self) -> str:
        """A name that no other process of this machine had since it started."""
        return f"{self.pid}-{self.began}"


def read_stat(pid: int) -> ProcessStat | None:
    """The process with this number now; None if it is gone."""
    words = _read_file(f"{PROC_FOLDER}/{pid}/stat").rpartition(b")")[2].split()
    if not words:
        return None
    alive = words[0] not in b"ZX" or _has_threads(pid)
    return ProcessStat(pid, int(words[1]), int(words[2]), int(words[3]), int(words[19]), alive)


def _has_threads(pid: int) -> bool:
    """Whether threads of a process are alive whose first thread has ended."""
    with suppress(OSError):
        return len(os.listdir(f"{PROC_FOLDER}/{pid}/task")) > 1
    return False


def list_own_processes() -> Iterator[ProcessStat]:
    """All processes of this user."""
    with suppress(OSError):
        for name in os.listdir(PROC_FOLDER):
            if name.isdigit() and is_own_user(int(name)) and (one := read_stat(int(name))):
                yield one


def list_descendants(
    pid: int, but: Collection[int] = (), beside: Callable[[ProcessStat], bool] = lambda _: False
) -> Iterator[ProcessStat]:
    """All descendants of a process, parents before children, except for some and what is below those."""
    seen = {pid, *but}
    todo = [pid]
    for parent in todo:
        for child in list_child_pids(parent) or ():
            if child not in seen and (one := read_stat(child)) and not beside(one):
                seen.add(child)
                todo.append(child)
                yield one


def list_ancestors(pid: int) -> list[int]:
    """A process and all its ancestors."""
    line = []
    while pid and (one := read_stat(pid)):
        line.append(pid)
        pid = one.parent
    return line


def list_child_pids(pid: int) -> list[int] | None:
    """The children of a process, of any of its threads; None where the kernel cannot tell."""
    if not _has_children_file():
        return None
    found: list[int] = []
    with suppress(OSError):
        for thread in os.listdir(f"{PROC_FOLDER}/{pid}/task"):
            found += map(int, _read_file(f"{PROC_FOLDER}/{pid}/task/{thread}/children").split())
    return found


@cache
def _has_children_file() -> bool:
    return os.path.exists(f"{PROC_FOLDER}/self/task/{os.getpid()}/children")


def read_environment(pid: int, *names: str) -> dict[str, str]:
    """These variables as the process was started with them; empty if it may not be read."""
    found = {}
    text = b"\0" + _read_file(f"{PROC_FOLDER}/{pid}/environ")
    for name in names:
        _, mark, rest = text.partition(b"\0" + name.encode() + b"=")
        if mark:
            found[name] = os.fsdecode(rest.partition(b"\0")[0])
    return found


def read_command_line(pid: int) -> list[bytes]:
    """The command line of a process."""
    return _read_file(f"{PROC_FOLDER}/{pid}/cmdline").split(b"\0")


def read_peak_bytes() -> int:
    """The peak memory of this process."""
    return _read_number(f"{PROC_FOLDER}/self/status", b"\nVmHWM:") << 10


def count_oom_kills() -> int:
    """How many processes the kernel has killed on this machine for lack of memory, in containers or not."""
    return _read_number(f"{PROC_FOLDER}/vmstat", b"\noom_kill ")


def _read_number(path: str, before: bytes) -> int:
    words = _read_file(path).partition(before)[2].split(None, 1)
    return int(words[0]) if words else 0


def pid_exists(pid: int) -> bool:
    """Whether a process has this number, according to the kernel; even one that /proc does not show."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def is_own_user(pid: int) -> bool:
    """Whether it belongs to this user, by the owner of its files, unless it hides its memory, as ssh-agent does."""
    with suppress(OSError):
        if os.stat(f"{PROC_FOLDER}/{pid}").st_uid == os.geteuid():
            return True
        real = _read_file(f"{PROC_FOLDER}/{pid}/status").partition(b"\nUid:")[2].split(None, 1)[:1]
        return real == [b"%d" % os.getuid()]
    return False


def is_same_namespace(pid: int) -> bool:
    """Whether it is in our process and time namespaces; one in a container has another number inside."""
    with suppress(OSError):
        return all(
            os.stat(f"{PROC_FOLDER}/{pid}/ns/{space}").st_ino == os.stat(f"{PROC_FOLDER}/self/ns/{space}").st_ino
            for space in ("pid", "time")
            if os.path.exists(f"{PROC_FOLDER}/self/ns/{space}")
        )
    return False


def _read_file(path: str) -> bytes:
    try:
        with open(path, "rb", buffering=0) as file:
            return file.readall()
    except OSError:
        return b""
