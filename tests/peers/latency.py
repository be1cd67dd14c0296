"""How long a job waits that comes alone, with a worker that has just worked, or one that has been idle; and what an
idle worker costs."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from typing import Any

from peers.peer import WARMING, Peer
from peers.server import Counters
from peers.statistic import median, percentile

GAP_S = (0.002, 0.008)
BUDGET_S = 10.0
COLD_EVERY_S = 2.5


def latency(peer: Peer, jobs: int) -> dict[str, Any]:
    """Submit → the job begins, one job after the other."""
    jobs = min(jobs, peer.entry.settings.get("n_latency", jobs))
    peer.server.flush()
    peer.forget()
    peer.start_worker()
    peer.start_producer(peer.server.cores)  # it sleeps while the worker works
    peer.probe(WARMING, wait_s=30)
    peer.probe(WARMING + 10, times=20, wait_s=5, gap=GAP_S)
    said = peer.probe(0, times=jobs, wait_s=BUDGET_S, gap=GAP_S)
    peer.stop_producer()
    peer.stop_worker()
    found: dict[str, Any] = {"n": len(said["ns"]), "lost": said["lost"]}
    for percent in (50, 95, 99):
        found[f"p{percent}_us"] = _us(percentile(said["ns"], percent))
    return found


def idle(peers: Sequence[Peer], windows: int = 2, window_s: float = 7.0, rounds: int = 8) -> dict[str, dict[str, Any]]:
    """Workers with nothing to do, all at once, each on a server of its own: they use next to nothing."""
    for peer in peers:
        peer.start_worker()
        peer.start_producer()
        peer.probe(WARMING, wait_s=60)
        peer.stop_producer()
    time.sleep(4)
    seen = [_window(peers, window_s) for _ in range(windows)]
    found: dict[str, dict[str, Any]] = {}
    for peer in peers:
        own = [window[peer.entry.variant] for window in seen]
        found[peer.entry.variant] = {
            "windows": own,
            **peer.worker_memory(),
            **{name: median([window[name] for window in own]) for name in own[0]},
        }
    for variant, cold in _cold(peers, rounds).items():
        found[variant]["cold"] = cold
    for peer in peers:
        peer.stop_producer()
        peer.stop_worker()
    return found


def _window(peers: Sequence[Peer], window_s: float) -> dict[str, dict[str, float]]:
    before = [_now(peer) for peer in peers]
    time.sleep(window_s)
    found = {}
    for peer, (counters, cpu, at) in zip(peers, before, strict=True):
        later, later_cpu, later_at = _now(peer)
        took = later_at - at
        found[peer.entry.variant] = {
            "commands_per_s": later.commands_since(counters) / took,
            "reads_per_s": later.reads_since(counters) / took,
            "cpu_percent": (later_cpu - cpu) / took * 100,
        }
    return found


def _now(peer: Peer) -> tuple[Counters, float, float]:
    return peer.server.counters(), peer.worker_cpu(), time.monotonic()


def _cold(peers: Sequence[Peer], rounds: int) -> dict[str, dict[str, Any]]:
    """One job now and then, which shows who polls, and how often."""
    for peer in peers:
        peer.start_producer()
    took: dict[str, list[int]] = {peer.entry.variant: [] for peer in peers}
    for number in range(rounds):
        begun = time.monotonic()
        for peer in random.sample(list(peers), len(peers)):
            time.sleep(random.uniform(0, 0.1))
            took[peer.entry.variant] += peer.probe(number, wait_s=5)["ns"]
        time.sleep(max(0.0, COLD_EVERY_S - (time.monotonic() - begun)))
    return {
        variant: {"n": len(ns), "p50_us": _us(percentile(ns, 50)), "max_us": _us(max(ns, default=None))}
        for variant, ns in took.items()
    }


def _us(ns: float | None) -> float | None:
    return None if ns is None else ns / 1e3
