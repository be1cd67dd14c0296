"""The processes of one attempt: started, fed, watched and ended.

1. `spawn` starts the first one, in a session and group of its own, with exactly the given environment.
2. `wait` returns its exit at once, even if other processes still hold its pipes.
3. `end` ends it and everything it started; see `process_tree`.

The child is started by `vfork`, the only cheap way out of a large process, so no Python runs in it that could set its
limits. util-linux's `prlimit` sets them and becomes the program. Without it, they are set from here, as niceness and
cgroup are: right after the start, on the process and on all it has started by then. On a busy machine that can be some
milliseconds late.
"""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from agentq.coordinator.clock import monotonic_ms
from agentq.coordinator.errors import AgentqError
from agentq.coordinator.model.spec import ResourceLimits
from agentq.worker.process import pidfd, process_tree, procfs
from agentq.worker.process.cgroups import Cgroups, RunCgroup
from agentq.worker.process.subreaper import become_subreaper, root_processes, schedule_reaping
from agentq.worker.process.termination import KILL_TIMEOUT_MS, Unkillable, send_signal, wait_until_gone

PIPE_BYTES = 65_536
"""The capacity of an empty pipe, and the size of one write to it."""
SHOWN_CHARACTERS = 200
"""Length limit of a program's name in a message."""
MAXRSS_BYTES = 1 if sys.platform == "darwin" else 1024
OOM_COUNT_MS = 1_000
PEAK_TOLERANCE_BYTES = 1 << 20
"""How exactly the kernel counts a process's memory."""

ProcessLimits = Mapping[str, tuple[int, int]]
"""Soft and hard limits, by `prlimit`'s names."""
_PRLIMIT = shutil.which("prlimit", path=os.defpath) if sys.platform == "linux" else None


class SpawnFailed(AgentqError):
    """The process could not be started."""


@dataclass(frozen=True, slots=True)
class ProcessLaunch:
    """A program to start, and how."""

    argv: Sequence[str]
    env: Mapping[str, str]
    """The whole environment except for the run's marks, which `spawn` adds; nothing is inherited."""
    cwd: Path
    cookie: str
    caps: ResourceLimits = field(default_factory=ResourceLimits)
    stdin: bytes = b""
    pass_fds: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ProcessExit:
    """How the first process ended, and the resources of it and its awaited children."""

    code: int | None
    signal: int | None
    user_ms: int
    system_ms: int
    peak_memory_bytes: int
    """0 if it was less than the worker's own, from which it cannot be told apart."""
    oom: bool


class RunProcess:
    """The first process of an attempt."""

    def __init__(
        self, popen: subprocess.Popen[bytes], pipes: Sequence[int], cookie: str, leaf: RunCgroup | None
    ) -> None:
        self.pid = popen.pid
        self.stdout, self.stderr = pipes
        self._popen = popen
        self._stdin = -1
        self._unwritten = memoryview(b"")
        self._killed = False
        self._kills_before = _count_recent_kills()
        self._loop = asyncio.get_running_loop()
        self._exit: asyncio.Future[ProcessExit] = self._loop.create_future()
        root = procfs.read_stat(self.pid) or procfs.ProcessStat(self.pid, os.getpid(), self.pid, self.pid, 0, True)
        self._tree = process_tree.ProcessTree(cookie, root, monotonic_ms(), leaf)
        root_processes[self.pid] = root.began
        self._watch()
        schedule_reaping()

    @classmethod
    async def spawn(cls, launch: ProcessLaunch, *, cgroups: Cgroups | None) -> Self:
        """Start the process; raises `SpawnFailed` with one sentence."""
        become_subreaper()
        bounded = cgroups is not None and cgroups.memory
        leaf = (
            cgroups.leaf(launch.cookie, process_tree.get_process_name(os.getpid()), launch.caps.memory_bytes)
            if cgroups
            else None
        )
        pipes: list[int] = []
        try:
            limits = _build_limits(launch.caps, bounded=bounded and leaf is not None)
            for _ in range(3 if launch.stdin else 2):
                pipes += os.pipe()
            written = _fill_pipe(pipes[5], launch.stdin) if launch.stdin else 0
            popen = _spawn_process(launch, pipes, limits)
        except (OSError, ValueError) as error:
            _close_all(pipes)
            if leaf is not None:
                leaf.remove()
            raise SpawnFailed(_format_spawn_error(error, launch)) from error
        _close_all([pipes[1], pipes[3], *pipes[4:5]])
        process = cls(popen, (pipes[0], pipes[2]), launch.cookie, leaf)
        os.set_blocking(process.stdout, False)
        os.set_blocking(process.stderr, False)
        if launch.stdin:
            process._feed_stdin(pipes[5], memoryview(launch.stdin)[written:])
        try:
            _apply_limits(process._tree, {} if _PRLIMIT else limits, launch.caps.nice)
        except OSError as error:
            _close_all(pipes[:3:2])
            await process.end(0)
            raise SpawnFailed(f"The limits of {launch.argv[0]} cannot be set: {error.strerror}.") from error
        return process

    async def wait(self) -> ProcessExit:
        """Its exit. Any number of callers may wait and stop waiting."""
        return await asyncio.shield(self._exit)

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to the first process alone, if it has not ended."""
        if not self._exit.done():
            with suppress(PermissionError, ProcessLookupError):
                os.kill(self.pid, number)

    async def end(self, grace_ms: int) -> int:
        """End it and everything it started: SIGTERM to its group, and after the grace SIGKILL to all.

        Returns how many processes had left the group. No process is left when this returns.
        """
        if grace_ms > 0:
            await self._terminate(grace_ms)
        self._killed = True
        if not self._exit.done():
            self._signal_group(signal.SIGKILL)
            await asyncio.wait([self._exit], timeout=KILL_TIMEOUT_MS / 1000)
            if not self._exit.done():
                why = "it hangs in the kernel, or belongs to another user"
                raise Unkillable(f"Process {self.pid} cannot be ended: {why}.")
        return await process_tree.end_tree(self._tree)

    async def _terminate(self, grace_ms: int) -> None:
        """SIGTERM to the group; returns when all its members are gone, whichever ends last."""
        deadline_ms = monotonic_ms() + grace_ms
        if self._exit.done():
            for one in self._group_members():
                send_signal(one, signal.SIGTERM)
        else:
            self._signal_group(signal.SIGTERM)
            self._signal_group(signal.SIGCONT)
            await asyncio.wait([self._exit], timeout=grace_ms / 1000)
        if self._exit.done():
            await wait_until_gone(self._group_members(), deadline_ms - monotonic_ms())

    def _signal_group(self, number: signal.Signals) -> None:
        """Signal the group. Only before the first process is reaped: later its number may be reused."""
        with suppress(PermissionError, ProcessLookupError):
            os.killpg(self.pid, number)

    def _group_members(self) -> list[procfs.ProcessStat]:
        return [one for one, _ in process_tree.find_members([self._tree]) if one.group == self.pid]

    def _watch(self) -> None:
        """Call `_reap` when it has ended: by a pidfd where there is one, by a thread elsewhere."""
        try:
            self._pidfd = pidfd.open_pidfd(self.pid)
        except OSError:
            self._pidfd = -1
            threading.Thread(target=self._wait_in_thread, daemon=True).start()
        else:
            self._loop.add_reader(self._pidfd, self._reap)

    def _wait_in_thread(self) -> None:
        with suppress(ChildProcessError):
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._reap)

    def _reap(self) -> None:
        """Take its exit status, which frees its number."""
        if self._pidfd >= 0:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
        self._close_stdin()
        try:
            _, status, usage = os.wait4(self.pid, 0)
        except ChildProcessError:  # its status was taken elsewhere
            ended = ProcessExit(None, None, 0, 0, 0, False)
        else:
            ended = self._build_exit(status, usage)
        root_processes.pop(self.pid, None)
        self._popen.returncode = -(ended.signal or 0) or ended.code or 0
        self._exit.set_result(ended)

    def _build_exit(self, status: int, usage: resource.struct_rusage) -> ProcessExit:
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
        code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else None
        leaf = self._tree.leaf
        peak = (leaf.peak_bytes() if leaf is not None else 0) or _measure_peak_bytes(usage)
        oom = leaf is not None and leaf.out_of_memory()
        if number == signal.SIGKILL and not self._killed:
            oom = oom or procfs.count_oom_kills() > self._kills_before
        return ProcessExit(code, number, round(usage.ru_utime * 1000), round(usage.ru_stime * 1000), peak, oom)

    def _feed_stdin(self, end: int, unwritten: memoryview) -> None:
        """Write the rest of its stdin as it reads."""
        self._stdin, self._unwritten = end, unwritten
        if unwritten and not self._exit.done():
            self._loop.add_writer(end, self._write_stdin)
        else:
            self._close_stdin()

    def _write_stdin(self) -> None:
        try:
            self._unwritten = self._unwritten[os.write(self._stdin, self._unwritten[:PIPE_BYTES]) :]
        except BlockingIOError:
            return
        except OSError:  # the pipe is closed
            self._unwritten = memoryview(b"")
        if not self._unwritten:
            self._close_stdin()

    def _close_stdin(self) -> None:
        if self._stdin >= 0:
            self._loop.remove_writer(self._stdin)
            os.close(self._stdin)
            self._stdin, self._unwritten = -1, memoryview(b"")


_oom_kills, _oom_kills_ms = 0, 0


def _count_recent_kills() -> int:
    """How many processes the kernel had killed out of memory, up to a second ago."""
    global _oom_kills, _oom_kills_ms
    if monotonic_ms() - _oom_kills_ms >= OOM_COUNT_MS:
        _oom_kills, _oom_kills_ms = procfs.count_oom_kills(), monotonic_ms()
    return _oom_kills


def _fill_pipe(end: int, text: bytes) -> int:
    """Write as much as the empty pipe takes, usually all of it."""
    os.set_blocking(end, False)
    try:
        return os.write(end, text[:PIPE_BYTES])
    except BlockingIOError:
        return 0


def _spawn_process(launch: ProcessLaunch, pipes: list[int], limits: ProcessLimits) -> subprocess.Popen[bytes]:
    if not launch.argv:
        raise ValueError("the command line is empty")
    argv = list(launch.argv)
    if limits and _PRLIMIT:
        _check_program(launch)
        argv = [_PRLIMIT, *(f"--{name}={soft}:{hard}" for name, (soft, hard) in limits.items()), "--", *argv]
    return subprocess.Popen(
        argv,
        stdin=pipes[4] if launch.stdin else subprocess.DEVNULL,
        stdout=pipes[1],
        stderr=pipes[3],
        env={
            **launch.env,
            process_tree.COOKIE_VARIABLE: launch.cookie,
            process_tree.STARTER_VARIABLE: process_tree.get_process_name(os.getpid()),
        },
        cwd=launch.cwd,
        start_new_session=True,
        pass_fds=launch.pass_fds,
        umask=-1 if launch.caps.umask is None else launch.caps.umask,
    )


def _check_program(launch: ProcessLaunch) -> None:
    """Raise the system's error if the program does not exist: `prlimit` would only end with an exit code."""
    program = launch.argv[0]
    folders = [""] if "/" in program else os.get_exec_path(launch.env)
    found = [path for folder in folders if (path := launch.cwd / folder / program).is_file()]
    if launch.cwd.is_dir() and not any(os.access(path, os.X_OK) for path in found):
        code = errno.EACCES if found else errno.ENOENT
        raise OSError(code, os.strerror(code), program)


def _measure_peak_bytes(usage: resource.struct_rusage) -> int:
    """Its peak memory; 0 if that was no more than the worker's: it began as a copy of the worker."""
    peak = usage.ru_maxrss * MAXRSS_BYTES
    return peak if peak > procfs.read_peak_bytes() + PEAK_TOLERANCE_BYTES else 0


def _build_limits(caps: ResourceLimits, *, bounded: bool) -> ProcessLimits:
    """Soft and hard limits, none above the worker's own; memory only if no cgroup bounds it."""
    wanted = (
        ("data", None if bounded else caps.memory_bytes, 0),
        ("cpu", caps.cpu_s, 1),
        ("nofile", caps.open_files, 0),
        ("fsize", caps.file_bytes, 0),
    )
    limits = {}
    for name, soft, more in wanted:
        if soft is not None:
            _, hard_max = resource.getrlimit(_get_resource_number(name))
            hard = soft + more if hard_max == resource.RLIM_INFINITY else min(soft + more, hard_max)
            limits[name] = (min(soft, hard), hard)
    if limits and not hasattr(resource, "prlimit"):
        raise OSError("this system has no prlimit")
    return limits


def _get_resource_number(name: str) -> int:
    return int(getattr(resource, f"RLIMIT_{name.upper()}"))


def _apply_limits(tree: process_tree.ProcessTree, limits: ProcessLimits, nice: int | None) -> None:
    """Set limits that are not set yet, also for processes started meanwhile."""
    if not limits and tree.leaf is None and nice is None:
        return
    with suppress(ProcessLookupError):
        _apply_limits_to(tree.root.pid, limits, tree.leaf)
        if nice is not None:
            os.setpriority(os.PRIO_PGRP, tree.root.pid, nice)  # of the group, which includes every thread
    done = {tree.root.pid}
    if not limits and nice is None and procfs.list_child_pids(tree.root.pid) == []:
        return  # processes missed here are found when the run ends
    while new := {one.pid for one, _ in process_tree.find_members([tree])} - done:
        for pid in new:
            with suppress(OSError):
                _apply_limits_to(pid, limits, tree.leaf)
                if nice is not None:
                    os.setpriority(os.PRIO_PROCESS, pid, nice)
        done |= new


def _apply_limits_to(pid: int, limits: ProcessLimits, leaf: RunCgroup | None) -> None:
    if leaf is not None:
        leaf.add(pid)
    for name, pair in limits.items():
        resource.prlimit(pid, _get_resource_number(name), pair)


def _format_spawn_error(error: OSError | ValueError, launch: ProcessLaunch) -> str:
    """One sentence that says what to fix."""
    program = launch.argv[0][:SHOWN_CHARACTERS] if launch.argv else ""
    if isinstance(error, ValueError):
        return f"The process cannot be started: {error}."
    if error.errno is None:
        return f"{program} cannot be started: {error}."
    if error.filename is not None and os.fspath(error.filename) == os.fspath(launch.cwd):
        return f"The folder {launch.cwd} cannot be entered: {error.strerror}."
    if error.errno == errno.ENOENT and os.path.exists(launch.cwd / program) and "/" in program:
        return f"{program} cannot be started: the interpreter that its first line names does not exist."
    messages = {
        errno.ENOENT: f"There is no program {program}; look at the command line and at PATH.",
        errno.EACCES: f"{program} is not executable; look at its mode and at those of its folders.",
        errno.ENOEXEC: f"{program} is not a program of this machine; a script needs a first line like #!/bin/sh.",
        errno.E2BIG: f"The arguments and environment of {program} are too large; pass large input on stdin.",
        errno.EMFILE: "The worker has too many files open to start a process; raise `ulimit -n`.",
        errno.ENFILE: "The machine has too many files open to start a process.",
        errno.EAGAIN: "The user has too many processes to start one more; raise `ulimit -u`.",
        errno.ENOMEM: "The machine has not enough memory to start a process.",
    }
    return messages.get(error.errno) or f"{program} cannot be started: {error.strerror}."


def _close_all(ends: Sequence[int]) -> None:
    for end in ends:
        os.close(end)
