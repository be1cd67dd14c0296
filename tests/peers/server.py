"""A private Redis or Valkey on a free port of this machine, and what it has counted."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from peers.cores import on_cores, placement
from peers.processes import cpu_of


class Server:
    """Without persistence, unless options say otherwise. `cores` are its own, `peer_cores` those of its clients."""

    def __init__(self, binary: str, place: str = "free", options: Sequence[str] = ()) -> None:
        self.cores, self.peer_cores = placement(place)
        self._folder = tempfile.mkdtemp(prefix="peers-server-")
        self.port = _free_port()
        command = [binary, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", self._folder, "--save", ""]
        command += ["--appendonly", "no", "--loglevel", "warning", "--daemonize", "no", *options]
        with on_cores(self.cores):
            self._process = subprocess.Popen(
                command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
            )
        self.ask = self._connected()

    def _connected(self) -> Resp:
        for _ in range(200):
            with suppress(OSError):
                found = Resp(self.port)
                if found("PING") == "PONG":
                    return found
            time.sleep(0.02)
        raise RuntimeError("The server did not start.")

    def flush(self) -> None:
        """Forget all data, scripts, functions and counts."""
        self.ask("FLUSHALL")
        with suppress(RuntimeError):  # a server before 7.0 has no functions
            self.ask("FUNCTION", "FLUSH")
        self.ask("SCRIPT", "FLUSH")
        self.ask("CONFIG", "RESETSTAT")

    def memory(self) -> int:
        return int(self.ask.info("memory")["used_memory"])

    def counters(self) -> Counters:
        stats = self.ask.info("stats")
        calls = {}
        for name, text in self.ask.info("commandstats").items():
            calls[name.removeprefix("cmdstat_")] = int(dict(part.split("=") for part in text.split(","))["calls"])
        return Counters(
            commands=int(stats["total_commands_processed"]),
            reads=int(stats["total_reads_processed"]),
            net_bytes=int(stats["total_net_input_bytes"]) + int(stats["total_net_output_bytes"]),
            calls=calls,
        )

    def cpu(self) -> float:
        """Seconds of processor time so far."""
        return cpu_of(self._process.pid)

    def stop(self) -> None:
        with suppress(OSError):
            self.ask.close()
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)


@dataclass(frozen=True)
class Counters:
    """What a server has done so far, the two INFO commands that tell it included."""

    commands: int
    reads: int
    net_bytes: int
    calls: dict[str, int]

    def commands_since(self, before: Counters) -> int:
        return max(0, self.commands - before.commands - 2)

    def reads_since(self, before: Counters) -> int:
        return max(0, self.reads - before.reads - 2)


class Resp:
    """Just enough of the protocol to ask for counts and to empty a server."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._file = self._socket.makefile("rb")

    def __call__(self, *words: str) -> Any:
        parts = [f"*{len(words)}\r\n".encode()]
        for word in words:
            encoded = word.encode()
            parts.append(b"$%d\r\n%s\r\n" % (len(encoded), encoded))
        self._socket.sendall(b"".join(parts))
        return self._reply()

    def _reply(self) -> Any:
        line = self._file.readline()
        if not line:
            raise ConnectionError("The server closed the connection.")
        kind, rest = line[:1], line[1:-2]
        if kind == b"+":
            return rest.decode()
        if kind == b"-":
            raise RuntimeError(rest.decode())
        if kind == b":":
            return int(rest)
        if kind == b"$":
            return None if int(rest) < 0 else self._file.read(int(rest) + 2)[:-2]
        if kind == b"*":
            return None if int(rest) < 0 else [self._reply() for _ in range(int(rest))]
        raise RuntimeError(f"The server answered {line!r}.")

    def info(self, section: str) -> dict[str, str]:
        lines = self("INFO", section).decode().splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)

    def close(self) -> None:
        self._file.close()
        self._socket.close()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
