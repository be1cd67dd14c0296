"""Processes that start, serve and end embedded servers, for the tests of them."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from subprocess import PIPE, Popen

import redis
from support.processes import alive
from support.servers import until

from agentq.coordinator.storage.embedded import EmbeddedServer

START = """
import sys
from pathlib import Path
from agentq.coordinator.storage.embedded import EmbeddedServer
print("go", flush=True)
print(EmbeddedServer(Path(sys.argv[1]), binary=sys.argv[2] or None).start(), flush=True)
sys.stdin.read()
"""


def processes(folder: Path) -> list[int]:
    """The servers of this folder, by their command lines."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (entry / "cmdline").read_bytes().split(b"\0")
            if b"--dir" in words and os.fsencode(folder) in words:
                found.append(int(entry.name))
    return found


def end(pid: int) -> None:
    """Kill a process of this test, and see it gone."""
    os.kill(pid, signal.SIGKILL)
    until(lambda: not alive(pid), f"process {pid} to end")


def serving(server: EmbeddedServer) -> int:
    """The one process that serves the folder."""
    pid = server.pid()
    assert pid is not None
    assert processes(server.folder) == [pid]
    return pid


def store(url: str) -> redis.Redis:
    return redis.Redis.from_url(url, decode_responses=True)


def script(folder: Path, body: str) -> str:
    """A program that stands in front of the server, or in its place."""
    path = folder / "program"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


@contextmanager
def starting(server: EmbeddedServer, count: int = 1) -> Iterator[list[Popen[str]]]:
    """Processes that are about to call `start`, and stay when it is done."""
    argv = [sys.executable, "-c", START, str(server.folder), server.binary or ""]
    starters = [Popen(argv, stdin=PIPE, stdout=PIPE, text=True, process_group=0) for _ in range(count)]
    try:
        assert {heard(starter) for starter in starters} == {"go"}
        yield starters
    finally:
        for starter in starters:
            starter.kill()
            starter.communicate()


def heard(starter: Popen[str]) -> str:
    """The next line that it says: `go`, and then the URL."""
    assert starter.stdout is not None
    return starter.stdout.readline().strip()
