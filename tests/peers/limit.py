"""What the machine and its server can do at best: redis-benchmark, and `raw` on other servers and other cores."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from peers.cores import PLACEMENTS, Quiet, on_cores
from peers.drain import drain
from peers.latency import latency
from peers.peer import Peer
from peers.roster import Entry
from peers.server import Server
from peers.statistic import median

RATES = ("enqueue_single", "enqueue_bulk", "drain")
REQUESTS = 40_000
APPEND = ("XADD", "rb:s", "*", "f", "noop", "a", "123456")
READ = ("XREADGROUP", "GROUP", "g", "c", "COUNT", "100", "NOACK", "STREAMS", "rb:s", ">")
BENCHMARKS = (
    ("PING c1", 1, 1, REQUESTS, ("PING",)),
    ("XADD c1", 1, 1, REQUESTS, APPEND),
    ("XADD c50", 50, 1, REQUESTS, APPEND),
    ("XADD c1 P100", 1, 100, REQUESTS * 10, APPEND),
    ("XREADGROUP COUNT 100 c1", 1, 1, REQUESTS // 20, READ),
)
"""Name, clients, commands in a pipeline, requests, command."""


class Bounds:
    """Measures `raw` where the other peers are not measured."""

    def __init__(self, entry: Entry, venv: Path, binary: str, folder: Path, quiet: Quiet) -> None:
        self._entry = entry
        self._venv = venv
        self._binary = binary
        self._folder = folder
        self._quiet = quiet

    def persistent(self, place: str) -> dict[str, Any]:
        """On a server that writes its log to the disk."""
        found = {}
        for fsync, jobs in (("everysec", 20_000), ("always", 4_000)):
            options = ("--appendonly", "yes", "--appendfsync", fsync)
            with self._peer(self._entry.having(n_drain=jobs), place, options) as peer:
                found[f"appendfsync {fsync}"] = _rates([drain(peer, jobs, jobs // 4) for _ in range(2)])
        return found

    def placed(self, jobs: int, singly: int) -> dict[str, Any]:
        """On other cores: to wake a process on another core is dear in a virtual machine."""
        found = {}
        for place in PLACEMENTS:
            with self._peer(self._entry, place) as peer:
                rates = _rates([drain(peer, jobs, singly) for _ in range(2)])
                found[place] = {**rates, "latency_p50_us": latency(peer, 200)["p50_us"]}
        return found

    @contextmanager
    def _peer(self, entry: Entry, place: str, options: tuple[str, ...] = ()) -> Iterator[Peer]:
        self._quiet.wait()
        server = Server(self._binary, place, options)
        peer = Peer(entry, self._venv, server, self._folder)
        try:
            yield peer
        finally:
            peer.close()
            server.stop()


def redis_benchmark(server: Server) -> dict[str, float | None]:
    """Requests a second, twice and the median; nothing where redis-benchmark is not installed."""
    found: dict[str, list[float | None]] = {}
    for _ in range(2):
        server.flush()
        with suppress(RuntimeError):
            server.ask("XGROUP", "CREATE", "rb:s", "g", "0", "MKSTREAM")
        for name, clients, pipeline, requests, command in BENCHMARKS:
            rate = _benchmark(server, clients, pipeline, requests, command)
            if rate is not None:
                found.setdefault(name, []).append(rate)
    return {name: median(rates) for name, rates in found.items()}


def _benchmark(server: Server, clients: int, pipeline: int, requests: int, command: tuple[str, ...]) -> float | None:
    binary = shutil.which("redis-benchmark")
    if binary is None:
        return None
    words = [binary, "-p", str(server.port), "-n", str(requests), "-c", str(clients), "-P", str(pipeline), "--csv"]
    with on_cores(server.peer_cores):
        done = subprocess.run([*words, *command], capture_output=True, text=True, check=False)
    cells = done.stdout.strip().rpartition("\n")[2].split('","')
    try:
        return float(cells[1])
    except (IndexError, ValueError):
        return None


def _rates(repetitions: list[dict[str, Any]]) -> dict[str, float | None]:
    return {name: median([each[name] for each in repetitions]) for name in RATES}
