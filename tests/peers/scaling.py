"""Whether a worker is slower when more is pending."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from peers.peer import Peer
from peers.statistic import median

STEP = 5_000
WINDOWS = 2
WINDOW_S = 6.0
FILL_S = 60.0


def scaling(peer: Peer, depths: Iterable[int]) -> dict[str, Any]:
    """At each depth: fill, and watch a worker for two windows."""
    return {str(depth): _at(peer, depth) for depth in depths}


def _at(peer: Peer, depth: int) -> dict[str, Any]:
    server = peer.server
    server.flush()
    peer.forget()
    empty = server.memory()
    begun = time.monotonic()
    filled = _fill(peer, depth, begun + FILL_S)
    rates = []
    for _ in range(WINDOWS):
        before = peer.count()
        if filled - before < 2000:
            break
        peer.start_worker()
        peer.wait_for_count(before + 1, 30)
        peer.wait_for_count(filled, WINDOW_S)
        peer.stop_worker(2)
        began = sorted(at for _, at in peer.records()[before:])
        if len(began) > 1:
            rates.append((len(began) - 1) / ((began[-1] - began[0]) / 1e9))
    numbers = [number for number, _ in peer.records()]
    return {
        "filled": filled,
        "fill_s": time.monotonic() - begun,
        "bytes": (server.memory() - empty) / max(1, filled),
        "rates": rates,
        "rate": median(rates),
        "executed": len(numbers),
        "duplicates": len(numbers) - len(set(numbers)),
    }


def _fill(peer: Peer, depth: int, until: float) -> int:
    peer.start_producer()
    filled = 0
    while filled < depth and time.monotonic() < until:
        step = min(STEP, depth - filled)
        peer.ask("bulk", start=filled, n=step)
        filled += step
    peer.stop_producer()
    return filled
