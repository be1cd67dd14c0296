"""A cgroup of its own for each run, where this machine allows it.

It kills all of a run's processes at once, even hidden ones; where the memory controller is available, it also limits
and measures their memory. Everything here fails soft: without it, `process_tree` finds the processes.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

GROUP_PREFIX = "agentq."
WORKER_GROUP = f"{GROUP_PREFIX}worker"
"""The group inside a delegated one that workers themselves are in."""
PROCESSES_MAX = 8_192
"""Process limit of one run, including threads; more is a fork bomb."""
DELEGATION_ATTRIBUTES = ("user.delegate", "trusted.delegate")
"""How systemd marks a delegated group."""


@dataclass(frozen=True, slots=True)
class Cgroups:
    """The folder for runs' groups, and whether these can limit memory."""

    folder: Path
    memory: bool

    @classmethod
    def detect(cls) -> Cgroups | None:
        """The group of this process, if groups can be created there; the same for all runs of a worker."""
        with suppress(OSError, StopIteration):
            folder = _find_own_folder()
            if folder.name == WORKER_GROUP:
                folder = folder.parent
            probe = folder / f"{GROUP_PREFIX}probe.{os.getpid()}"
            probe.mkdir()
            try:
                if not os.access(probe / "cgroup.kill", os.W_OK) or not os.access(folder / "cgroup.procs", os.W_OK):
                    return None
            finally:
                probe.rmdir()
            return cls(folder, _enable_memory(folder))
        return None

    def leaf(self, cookie: str, starter: str, memory_bytes: int | None) -> RunCgroup | None:
        """A group for one attempt; None if it cannot be created now."""
        leaf = RunCgroup(self.folder / (GROUP_PREFIX + f"{cookie}/{starter}".replace("/", "%")))
        try:
            leaf.folder.mkdir(exist_ok=True)
            leaf.bound(memory_bytes if self.memory else None)
        except OSError:
            leaf.remove()
            return None
        return leaf

    def remaining(self) -> list[tuple[str, str, RunCgroup]]:
        """The existing groups, each with its run's cookie and starter."""
        found = []
        with suppress(OSError):
            for folder in self.folder.glob(GROUP_PREFIX + "*%*"):
                cookie, _, starter = folder.name.removeprefix(GROUP_PREFIX).replace("%", "/").rpartition("/")
                found.append((cookie, starter, RunCgroup(folder)))
        return found


@dataclass(frozen=True, slots=True)
class RunCgroup:
    """The group of one attempt."""

    folder: Path

    def bound(self, memory_bytes: int | None) -> None:
        """Limit its memory, after which the kernel kills all of it, and its number of processes."""
        with suppress(OSError):  # only where that controller is ours
            _write_once(self.folder / "pids.max", str(PROCESSES_MAX))
        if memory_bytes is None:
            return
        _write_once(self.folder / "memory.max", str(memory_bytes))
        for name, value in (("memory.swap.max", "0"), ("memory.oom.group", "1")):
            with suppress(OSError):
                _write_once(self.folder / name, value)

    def add(self, pid: int) -> bool:
        """Add a process; processes that it starts from now on follow."""
        with suppress(OSError):
            _write_once(self.folder / "cgroup.procs", str(pid))
            return True
        return False

    def release(self, pid: int) -> None:
        """Move a process to the worker's own group."""
        for folder in (self.folder.parent / WORKER_GROUP, self.folder.parent):
            with suppress(OSError):
                _write_once(folder / "cgroup.procs", str(pid))
                return

    def processes(self) -> list[int]:
        """All processes in it, at any depth."""
        found: list[str] = []
        with suppress(OSError):
            alone = os.stat(self.folder).st_nlink == 2
            for folder in (self.folder,) if alone else (Path(each) for each, _, _ in os.walk(self.folder)):
                with suppress(OSError):
                    found += (folder / "cgroup.procs").read_text().split()
        return [pid for pid in map(int, found) if pid]

    def kill(self) -> bool:
        """SIGKILL everything in it atomically: nothing escapes by forking."""
        with suppress(OSError):
            _write_once(self.folder / "cgroup.kill", "1")
            return True
        return False

    def remove(self) -> bool:
        """Delete it, from the inside out; False if it still has processes."""
        with suppress(OSError):
            os.rmdir(self.folder)
            return True
        for folder, _, _ in os.walk(self.folder, topdown=False):
            with suppress(OSError):
                os.rmdir(folder)
        return not self.folder.exists()

    def out_of_memory(self) -> bool:
        """Whether the kernel killed anything in it for lack of memory."""
        with suppress(OSError):
            return bool(re.search(r"^oom_kill [1-9]", (self.folder / "memory.events").read_text(), re.MULTILINE))
        return False

    def peak_bytes(self) -> int:
        """Its peak memory; 0 if unknown."""
        with suppress(OSError, ValueError):
            return int((self.folder / "memory.peak").read_text())
        return 0


def _find_own_folder() -> Path:
    """The folder of this process's group in the mounted v2 hierarchy."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as mounts:
        root, mounted = next(
            words[3:5] for words in map(str.split, mounts) if words[words.index("-", 6) + 1] == "cgroup2"
        )
    with open("/proc/self/cgroup", encoding="utf-8", errors="surrogateescape") as groups:
        own = next(line.rstrip("\n")[3:] for line in groups if line.startswith("0::"))
    return Path(mounted) / os.path.relpath(own, root)


def _enable_memory(folder: Path) -> bool:
    """Whether groups in here have the memory controller, after enabling it.

    The kernel enables controllers only inside a group that has no process of its own. So in a group that systemd
    delegated, the worker first moves into a subgroup.
    """
    if "memory" in _read_words(folder / "cgroup.subtree_control"):
        return True
    if "memory" not in _read_words(folder / "cgroup.controllers") or not _is_delegated(folder):
        return False
    with suppress(OSError):
        ours = folder / WORKER_GROUP
        ours.mkdir(exist_ok=True)
        _write_once(ours / "cgroup.procs", str(os.getpid()))
        _write_once(folder / "cgroup.subtree_control", "+memory")
        with suppress(OSError):
            _write_once(folder / "cgroup.subtree_control", "+pids")
        return True
    return False


def _is_delegated(folder: Path) -> bool:
    for name in DELEGATION_ATTRIBUTES:
        with suppress(OSError):
            return os.getxattr(folder, name) == b"1"
    return False


def _read_words(path: Path) -> list[str]:
    with suppress(OSError):
        return path.read_text().split()
    return []


def _write_once(path: Path, text: str) -> None:
    """Write in one call, because the kernel takes each as a command; never creates a file."""
    file = os.open(path, os.O_WRONLY)
    try:
        os.write(file, text.encode())
    finally:
        os.close(file)
