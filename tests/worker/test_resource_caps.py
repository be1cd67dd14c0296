"""What a run may use: memory, time, files."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.run_processes import COOKIE, PATH, outcome, python, read, run, shell
from support.run_processes import nobody_left as nobody_left

from agentq.coordinator.model.spec import ResourceLimits
from agentq.worker.process.run_process import ProcessExit

pytestmark = pytest.mark.usefixtures("nobody_left")

GATE = "read line < /dev/fd/{gate}; "
NICER = min(19, os.nice(0) + 7)
"""Whoever runs the tests may be nice already, and without rights can only become nicer."""


async def confined(caps: ResourceLimits, text: str) -> tuple[bytes, ProcessExit]:
    """What a shell says that goes on when `spawn` has returned."""
    begin, go = os.pipe()
    process = await shell(GATE.format(gate=begin) + text, caps=caps, pass_fds=(begin,))
    os.close(begin)
    os.write(go, b"go\n")
    os.close(go)
    return await outcome(process)


@pytest.fixture(params=["set by prlimit", "set by us"])
def either_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With util-linux's prlimit, and on a system without it."""
    if request.param == "set by us":
        monkeypatch.setattr("agentq.worker.process.run_process._PRLIMIT", None)


@pytest.mark.usefixtures("either_way")
def test_limits_hold_for_it_and_for_what_it_starts() -> None:
    caps = ResourceLimits(open_files=77, file_bytes=1024 * 512, nice=NICER, umask=0o137, cpu_s=5, memory_bytes=1 << 28)
    text = "(ulimit -n; ulimit -f; nice; umask; ulimit -t; ulimit -d)"

    said, _ = run(confined(caps, text))

    assert said.split() == [b"77", b"1024", b"%d" % NICER, b"0137", b"5", b"262144"]


@pytest.mark.usefixtures("either_way")
def test_limits_reach_what_it_had_started_before_they_were_set() -> None:
    """The shell in the background may begin at any time; it has the limits in any case once `spawn` has returned."""

    async def test() -> bytes:
        begin, go = os.pipe()
        text = f"(read line < /dev/fd/{begin}; ulimit -n; nice) & exec true"
        process = await shell(text, caps=ResourceLimits(open_files=78, nice=NICER), pass_fds=(begin,))
        os.close(begin)
        await process.wait()
        os.write(go, b"go\n")
        os.close(go)
        said = await read(process.stdout)
        os.close(process.stderr)
        await process.end(0)
        return said

    assert run(test()).split() == [b"78", b"%d" % NICER]


def test_a_cap_above_what_the_worker_has_changes_nothing() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)

    said, _ = run(confined(ResourceLimits(open_files=most + 1000), "ulimit -n; ulimit -Hn"))

    assert said.split() == [b"%d" % most] * 2


@pytest.mark.parametrize(
    ("caps", "text", "code", "number"),
    [
        (ResourceLimits(memory_bytes=100 << 20), "x = bytearray(300 << 20)", 1, None),
        (ResourceLimits(cpu_s=1), "while True: pass", None, signal.SIGXCPU),
        (ResourceLimits(file_bytes=1000), "with open('file', 'w') as f: f.write('x' * 5000)", 1, None),
    ],
    ids=["memory", "cpu", "file"],
)
def test_what_exceeds_a_cap_fails(
    caps: ResourceLimits, text: str, code: int | None, number: int | None, tmp_path: Path
) -> None:
    async def test() -> ProcessExit:
        return (await outcome(await python(text, caps=caps, cwd=tmp_path)))[1]

    ended = run(test())

    assert (ended.code, ended.signal) == (code, number)


def test_a_niceness_that_is_not_ours_to_give_is_a_failure_to_start() -> None:
    """A user without rights may only become nicer, and this one is very nice already."""
    text = f"""
import asyncio, os
from pathlib import Path
from agentq.coordinator.model.spec import ResourceLimits
from agentq.worker.process.run_process import ProcessLaunch, RunProcess, SpawnFailed
os.nice(10)
if os.geteuid() == 0:
    os.setuid(65534)
async def test():
    try:
        await RunProcess.spawn(ProcessLaunch(["sleep", "1000"], {PATH!r}, Path("/"), {COOKIE!r},
        ResourceLimits(nice=5)), cgroups=None)
    except SpawnFailed as failed:
        print(failed)
asyncio.run(test())
"""
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, cwd="/", check=False)

    assert done.stdout == "The limits of sleep cannot be set: Permission denied.\n", done.stderr
