"""One run of the comparison: takes the measures one after the other, and keeps what came out."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from peers.cores import Quiet
from peers.crash import crash
from peers.drain import drain
from peers.latency import idle, latency
from peers.limit import Bounds, redis_benchmark
from peers.peer import Peer
from peers.progress import log
from peers.roster import Entry
from peers.scaling import scaling
from peers.server import Server
from peers.statistic import merged
from peers.venvs import Venvs, versions

MEASURES = ("limit", "drain", "latency", "scaling", "idle", "crash")
QUIET_ENOUGH = 0.85
RETRIES_S = 45.0
"""How long a measure may take in all for what is done again because the machine was slow."""
FASTEST = 3
"""So many peers are measured at depth, and the limit."""


@dataclass(frozen=True)
class Plan:
    """What is to be done."""

    entries: Sequence[Entry]
    measures: Sequence[str]
    repetitions: int
    pending: int
    singly: int
    latency_jobs: int
    crash_limit_s: float
    scaling_peers: Sequence[str]
    scaling_depths: Sequence[int]
    place: str
    python: str


class Suite:
    """Takes the measures of a plan. After each it writes the results."""

    def __init__(self, plan: Plan, venvs: Venvs, binary: str, out: Path, results: dict[str, Any]) -> None:
        self._plan = plan
        self._binary = binary
        self._out = out
        self._begun = time.monotonic()
        self._quiet = Quiet()
        self._venvs = {entry.peer: venvs.make(entry.peer, entry.meta["packages"]) for entry in plan.entries}
        self._folder = Path(tempfile.mkdtemp(prefix="peers-records-", dir=_memory()))
        self.results = results
        results["machine"] = _machine(plan, binary)
        for entry in plan.entries:
            self._introduce(entry)

    def _introduce(self, entry: Entry) -> None:
        """Keep what an adapter says of itself beside what is measured of it."""
        known = self.results["peers"].setdefault(entry.variant, {})
        known["version"] = versions(self._venvs[entry.peer]).get(entry.meta["dist"].lower())
        known["settings"] = entry.meta["settings"]
        known["durable_settings"] = entry.meta.get("durable", "")
        known["retention"] = entry.meta.get("retention", "")

    def run(self) -> None:
        """Take the measures that the plan names, in the order that they build on one another."""
        try:
            for name in MEASURES:
                if name in self._plan.measures:
                    getattr(self, f"_{name}")()
                    self._save()
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)

    # ---- the measures

    def _limit(self) -> None:
        plan, results = self._plan, self.results
        with self._server() as server:
            results["redis_benchmark"] = redis_benchmark(server)
        log("redis-benchmark", results["redis_benchmark"])
        raw = next(entry for entry in plan.entries if entry.is_limit and entry.is_whole_peer)
        bounds = Bounds(raw, self._venvs[raw.peer], self._binary, self._folder, self._quiet)
        results["persistence"] = bounds.persistent(plan.place)
        log("persistence", results["persistence"])
        results["placement"] = bounds.placed(plan.pending, plan.singly)
        log("placement", results["placement"])

    def _drain(self) -> None:
        plan = self._plan
        self._alone("drain", lambda peer, first: drain(peer, plan.pending, plan.singly, full=first))

    def _latency(self) -> None:
        self._alone("latency", lambda peer, _: latency(peer, self._plan.latency_jobs))

    def _scaling(self) -> None:
        names = self._plan.scaling_peers or self._fastest()
        with self._server() as server:
            for entry in self._plan.entries:
                if entry.variant in names:
                    self._quiet.wait()
                    with self._peer(entry, server, "scaling") as peer:
                        found = scaling(peer, self._plan.scaling_depths)
                        self._result(entry)["scaling"] = found
                        log("scaling", entry.variant, {depth: each["rate"] for depth, each in found.items()})
                    self._save()

    def _idle(self) -> None:
        entries = [(entry, None) for entry in self._plan.entries if entry.wants("idle")]
        with self._crowd(entries) as peers:
            for variant, found in idle(peers).items():
                self.results["peers"][variant]["idle"] = found

    def _crash(self) -> None:
        entries: list[tuple[Entry, str | None]] = []
        for entry in self._plan.entries:
            if entry.wants("crash") and not entry.is_limit and entry.is_whole_peer:
                entries.append((entry, "default"))
                if not entry.meta["durable"].startswith("none"):
                    entries.append((entry, "durable"))
        with self._crowd(entries) as peers:
            for found in crash(peers, self._plan.crash_limit_s):
                self.results["peers"][found["peer"]].setdefault("crash", {})[found["profile"]] = found
                log("crash", found["peer"], found["profile"], found["after_s"], found.get("after_next_job_s"))

    # ---- how they are taken

    def _alone(self, measure: str, take: Callable[[Peer, bool], dict[str, Any]]) -> None:
        """One peer at a time. The repetitions go round, so that a drift of the machine hits all alike."""
        found: dict[str, list[dict[str, Any]]] = {}
        kinds: dict[str, str | None] = {}
        entries = [entry for entry in self._plan.entries if entry.wants(measure)]
        left_s = RETRIES_S
        with self._server() as server:
            for repetition in range(self._plan.repetitions):
                for entry in entries:
                    with self._peer(entry, server, measure) as peer:
                        peer.bulk_kind = kinds.get(entry.variant)
                        taken, left_s = self._quietly(partial(take, peer, repetition == 0), left_s)
                        kinds[entry.variant] = peer.bulk_kind
                        found.setdefault(entry.variant, []).append(taken)
                        shown = {name: round(value, 1) for name, value in taken.items() if isinstance(value, float)}
                        log(measure, entry.variant, f"#{repetition + 1}", shown)
                self._save()
        for variant, repetitions in found.items():
            self.results["peers"][variant][measure] = merged(repetitions)

    def _quietly(self, take: Callable[[], dict[str, Any]], left_s: float) -> tuple[dict[str, Any], float]:
        """Once more if the machine was slow before or after, as long as there is time for that."""
        for again in (True, False):
            before, begun = self._quiet.wait(), time.monotonic()
            found = take()
            found["speed"] = min(before, self._quiet.speed())
            took = time.monotonic() - begun
            if not again or found["speed"] >= QUIET_ENOUGH or left_s < took:
                break
            left_s -= took
            log(f"the machine was slow ({found['speed']:.2f}); again")
        return found, left_s

    def _fastest(self) -> list[str]:
        rates = {
            entry.variant: self._result(entry).get("drain", {}).get("drain") or 0
            for entry in self._plan.entries
            if not entry.is_limit
        }
        return ["raw", *sorted((name for name in rates if rates[name]), key=lambda name: -rates[name])[:FASTEST]]

    @contextmanager
    def _server(self) -> Iterator[Server]:
        server = Server(self._binary, self._plan.place)
        try:
            yield server
        finally:
            server.stop()

    @contextmanager
    def _peer(self, entry: Entry, server: Server, measure: str) -> Iterator[Peer]:
        """A peer to measure. If it fails, the others go on, and the results tell."""
        peer = Peer(entry, self._venvs[entry.peer], server, self._folder)
        try:
            yield peer
        except Exception as error:  # noqa: BLE001 - a library may fail in any way
            log(f"!! {measure} {entry.variant}: {error!r}\n{peer.said()}")
            self._result(entry).setdefault("errors", []).append(f"{measure}: {error!r}"[:300])
        finally:
            peer.close()

    @contextmanager
    def _crowd(self, entries: Sequence[tuple[Entry, str | None]]) -> Iterator[list[Peer]]:
        """Peers that work at the same time, each on a server of its own."""
        peers: list[Peer] = []
        try:
            for entry, profile in entries:
                peers.append(Peer(entry, self._venvs[entry.peer], Server(self._binary), self._folder, profile))
            yield peers
        finally:
            for peer in peers:
                peer.close()
                peer.server.stop()

    # ---- what came out

    def _result(self, entry: Entry) -> dict[str, Any]:
        found: dict[str, Any] = self.results["peers"][entry.variant]
        return found

    def _save(self) -> None:
        self.results["seconds"] = round(time.monotonic() - self._begun, 1)
        self._out.write_text(json.dumps(self.results, indent=1) + "\n", encoding="utf-8")


def _memory() -> str | None:
    """A folder in memory, where the machine has one: a slow disk would be measured as well."""
    return "/dev/shm" if os.path.isdir("/dev/shm") else None


def _machine(plan: Plan, binary: str) -> dict[str, Any]:
    code = (
        "import sys, timeit;"
        "loop = min(timeit.repeat('sum(i*i for i in range(1000))', number=1000, repeat=7));"
        "print(sys.version.split()[0], loop * 1000)"
    )
    done = subprocess.run([plan.python, "-c", code], capture_output=True, text=True, check=True)
    version, loop = done.stdout.split()
    server = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True).stdout
    return {
        "cpus": os.cpu_count(),
        "kernel": platform.release(),
        "python": version,
        "python_ns_per_loop": round(float(loop), 1),
        "server": server.split(" sha")[0].strip(),
        "placement": plan.place,
        "date": time.strftime("%Y-%m-%d"),
    }
