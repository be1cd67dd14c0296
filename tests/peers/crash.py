"""SIGKILL to a worker in the middle of a job: is the job started again, and when?"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from peers.peer import WARMING, Peer

JOB = 7


@dataclass
class Victim:
    """A peer whose worker was killed."""

    peer: Peer
    killed_at_ns: int
    after_s: float | None = None
    after_next_job_s: float | None = None

    def started_again_s(self) -> float | None:
        starts = self.peer.starts_of(JOB)
        return (starts[1] - self.killed_at_ns) / 1e9 if len(starts) > 1 else None


def crash(peers: Sequence[Peer], limit_s: float) -> list[dict[str, Any]]:
    """All peers at once, each on a server of its own."""
    victims = [_killed(peer) for peer in peers]
    end = time.monotonic() + limit_s
    waiting = victims
    while waiting and time.monotonic() < end:
        for victim in waiting:
            victim.after_s = victim.started_again_s()
        waiting = [victim for victim in waiting if victim.after_s is None]
        time.sleep(0.1)
    _nudge(waiting)
    found = [_told(victim) for victim in victims]
    for peer in peers:
        peer.stop_producer()
        peer.kill_worker()
    return found


def _killed(peer: Peer) -> Victim:
    """Kill the worker once the job blocks in it, and start another worker, in which the job would not block."""
    peer.forget()
    peer.start_worker()
    peer.start_producer()
    peer.probe(WARMING, wait_s=60)
    peer.ask("crash", start=JOB)
    end = time.monotonic() + 30
    while not peer.starts_of(JOB) and time.monotonic() < end:
        time.sleep(0.05)
    time.sleep(1.0)  # it may have more to write after the start
    peer.kill_worker()
    killed_at_ns = time.time_ns()
    peer.release()
    peer.start_worker()
    return Victim(peer, killed_at_ns)


def _nudge(victims: Sequence[Victim]) -> None:
    """One more job: some look after lost ones only when they have something to do."""
    for victim in victims:
        victim.peer.probe(WARMING + 5, wait_s=10)
    if victims:
        time.sleep(8)
    for victim in victims:
        victim.after_next_job_s = victim.started_again_s()


def _told(victim: Victim) -> dict[str, Any]:
    peer = victim.peer
    found: dict[str, Any] = {
        "peer": peer.entry.variant,
        "profile": peer.profile,
        "after_s": victim.after_s,
        "runs": len(peer.starts_of(JOB)),
        "errors": peer.said(600) if victim.after_s is None else "",
    }
    if victim.after_next_job_s is not None:
        found["after_next_job_s"] = victim.after_next_job_s
    return found
