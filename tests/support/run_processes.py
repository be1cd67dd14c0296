"""Processes of runs, started on a loop of the test's own; nothing of them may be left when the test ends."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from support.servers import until

from agentq.worker.process import process_tree, procfs
from agentq.worker.process.cgroups import Cgroups
from agentq.worker.process.run_process import ProcessExit, ProcessLaunch, RunProcess
from agentq.worker.process.subreaper import NO_ORPHANS, become_subreaper, reap_orphans, root_processes

PATH = {"PATH": os.environ["PATH"]}
NAMESPACE = f"test{os.getpid()}"
COOKIE = f"{NAMESPACE}/run_1/1-a"


READY = "import os, signal, sys, time\ndef ready(): os.write(1, b'ready\\n')\n"
FOREVER = "while True: time.sleep(1000)\n"
DETACH = (
    "first = os.getpid()\nif os.fork(): os._exit(0)\nos.setsid()\n"
    "while os.getppid() == first: time.sleep(0.001)\nparent = os.getpid()\nif os.fork(): os._exit(0)\n"
    "while os.getppid() == parent: time.sleep(0.001)\n"
)
"""It goes on when the first and the one between are gone, which else might be found beside it."""


async def start(*argv: str, cgroups: Cgroups | None = None, **given: Any) -> RunProcess:
    given = {"env": PATH, "cwd": Path("/"), "cookie": COOKIE, **given}
    return await RunProcess.spawn(ProcessLaunch(argv, **given), cgroups=cgroups)


async def shell(text: str, **given: Any) -> RunProcess:
    return await start("/bin/sh", "-c", text, **given)


async def python(text: str, **given: Any) -> RunProcess:
    return await start(sys.executable, "-I", "-S", "-c", text, **given)


async def read(end: int) -> bytes:
    """All that comes out of one of its pipes."""
    loop, pieces, over = asyncio.get_running_loop(), list[bytes](), asyncio.Event()

    def more() -> None:
        pieces.append(os.read(end, 1 << 20))
        if not pieces[-1]:
            over.set()

    loop.add_reader(end, more)
    await over.wait()
    loop.remove_reader(end)
    os.close(end)
    return b"".join(pieces)


async def outcome(process: RunProcess) -> tuple[bytes, ProcessExit]:
    """What it says on stdout, and how it ends."""
    said, _ = await asyncio.gather(read(process.stdout), read(process.stderr))
    ended = await process.wait()
    assert await process.end(0) == 0
    return said, ended


async def shut(process: RunProcess, grace_ms: int = 0) -> int:
    """End it, and close what a reader would have."""
    try:
        return await process.end(grace_ms)
    finally:
        os.close(process.stdout)
        os.close(process.stderr)


async def when(condition: Callable[[], object], what: str) -> None:
    await asyncio.to_thread(until, condition, what)


async def ready(process: RunProcess) -> None:
    """Wait for the word that it is where the test wants it."""
    await when(lambda: readable(process.stdout), "the child to get ready")
    assert os.read(process.stdout, 6) == b"ready\n"


def readable(end: int) -> bool:
    return bool(select.select([end], [], [], 0)[0])


def descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


def run(test: Coroutine[Any, Any, Any]) -> Any:
    """Run a test on a loop, which leaves no descriptor, no child and nothing of the run behind."""
    before = descriptors()
    value = asyncio.run(test)

    assert len(descriptors()) <= len(before)
    assert root_processes == {}
    assert [one.pid for one in procfs.list_own_processes() if marked(one.pid)] == []
    return value


@pytest.fixture
def nobody_left() -> Iterator[None]:
    """This process gets the orphans, also before its first run; and what a test that failed has left is ended."""
    become_subreaper()
    yield
    for one in procfs.list_descendants(os.getpid()):
        with suppress(ProcessLookupError):
            os.kill(one.pid, signal.SIGKILL)
    root_processes.clear()
    until(lambda: reap_orphans() == NO_ORPHANS, "the orphans to be reaped")


def marked(pid: int) -> bool:
    """Whether it is of a run of this test."""
    return (
        procfs.read_environment(pid, process_tree.COOKIE_VARIABLE)
        .get(process_tree.COOKIE_VARIABLE, "")
        .startswith(f"{NAMESPACE}/")
    )


WORKER = """
import asyncio, os, sys
from pathlib import Path
from agentq.worker.process.run_process import ProcessLaunch, RunProcess
async def work():
    for number, text in enumerate(sys.argv[2:]):
        argv, cookie = [sys.executable, "-I", "-S", "-c", text], f"{sys.argv[1]}/run_{number}/1-a"
        process = await RunProcess.spawn(ProcessLaunch(argv, dict(os.environ), Path("/"), cookie), cgroups=None)
        while not os.read(process.stdout, 6): pass
    print("ready", flush=True)
    await asyncio.Event().wait()
async def patient():
    os.set_blocking = lambda end, blocking: None
    await work()
asyncio.run(patient())
"""


@pytest.fixture
def workers() -> Iterator[list[subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for worker in started:
        worker.kill()
        worker.communicate()
    for name in ("live", "dead", "box"):
        asyncio.run(process_tree.end_dead_trees(f"{NAMESPACE}{name}"))


def worker(workers: list[subprocess.Popen[bytes]], namespace: str, *texts: str) -> subprocess.Popen[bytes]:
    """A worker process whose runs do this, when they have all begun."""
    argv = [sys.executable, "-c", WORKER, namespace, *(READY + text + FOREVER for text in texts)]
    workers.append(subprocess.Popen(argv, stdout=subprocess.PIPE))
    stdout = workers[-1].stdout
    assert stdout is not None
    assert stdout.readline() == b"ready\n"
    return workers[-1]


def runs_of(namespace: str) -> set[int]:
    named = f"{namespace}/"
    return {
        one.pid
        for one in procfs.list_own_processes()
        if procfs.read_environment(one.pid, process_tree.COOKIE_VARIABLE)
        .get(process_tree.COOKIE_VARIABLE, "")
        .startswith(named)
        and one.alive
    }
