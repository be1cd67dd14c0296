"""A worker on a system that has less than this one."""

from __future__ import annotations

import subprocess
import sys

from support.run_processes import NAMESPACE, PATH

PRETEND = """
import asyncio, ctypes, itertools, os, resource, signal, sys
from agentq.coordinator.model.spec import ResourceLimits
{elsewhere}
from pathlib import Path
from agentq.worker.process import pidfd, procfs
from agentq.worker.process.run_process import ProcessLaunch, RunProcess, SpawnFailed
{without}
count = itertools.count()
async def test():
    def launch(text, caps=ResourceLimits()):
        cookie = f"{namespace}/run_{{next(count)}}/1-a"
        return RunProcess.spawn(ProcessLaunch(["/bin/sh", "-c", text], {path}, Path("/"), cookie, caps), cgroups=None)
    first, second = await launch("exit 3"), await launch("exec sleep 1000")
    print((await first.wait()).code, await first.end(0), await second.end(5000), (await second.wait()).signal)
    try:
        third = await launch("setsid sh -c 'echo ready; exec sleep 1000' & exit 4", ResourceLimits(cpu_s=1))
        asyncio.get_running_loop().add_reader(third.stdout, (ready := asyncio.Event()).set)
        await ready.wait()
        print((await third.wait()).code, await third.end(0))
    except SpawnFailed as failed:
        print(failed)
asyncio.run(test())
"""


def pretending(elsewhere: str, without: str = "") -> list[str]:
    """What a worker says that finds less than the system of this test has."""
    text = PRETEND.format(elsewhere=elsewhere, without=without, path=PATH, namespace=NAMESPACE)
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_it_works_as_well_with_a_python_that_does_not_know_pidfds() -> None:
    assert pretending("del os.pidfd_open, signal.pidfd_send_signal") == ["3 0 0 15", "4 1"]


def test_it_works_as_well_on_a_kernel_without_pidfds() -> None:
    """A thread waits for the process then, and the end of others is looked for every few milliseconds."""
    gone = "def opened(pid): raise OSError(38, 'Function not implemented')\npidfd.open_pidfd = opened"

    assert pretending("", gone) == ["3 0 0 15", "4 1"]


def test_it_works_as_well_where_orphans_do_not_become_ours() -> None:
    """As in a sandbox that refuses `prctl`: the cookies are then looked for among all processes."""
    assert pretending("ctypes.CDLL = None; sys.platform = 'other'") == ["3 0 0 15", "4 1"]


def test_without_proc_and_limits_a_process_is_started_and_ended_and_caps_are_refused() -> None:
    """As on macOS."""
    lacking = "del os.pidfd_open, signal.pidfd_send_signal, resource.prlimit; sys.platform = 'darwin'"
    first, second = pretending(lacking, "procfs.PROC_FOLDER = '/nowhere'")

    assert first == "3 0 0 15"
    assert second == "/bin/sh cannot be started: this system has no prlimit."


def test_exit_codes_are_told_to_a_worker_that_was_started_with_sigchld_ignored() -> None:
    """Some supervisors do so, and it is inherited: the kernel would throw every status away."""
    assert pretending("signal.signal(signal.SIGCHLD, signal.SIG_IGN)") == ["3 0 0 15", "4 1"]
