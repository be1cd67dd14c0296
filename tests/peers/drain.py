"""Throughput: submit many jobs, weigh them, let one worker drain them, and weigh what stays."""

from __future__ import annotations

import time
from typing import Any

from peers.peer import WARMING, Peer
from peers.progress import log

TIMEOUT_S = 60.0
SINGLE_S = 1.5


def drain(peer: Peer, pending: int, singly: int, *, full: bool = True) -> dict[str, Any]:
    """Everything about a full queue. A repetition that is not full submits no more than the drain needs."""
    jobs = peer.entry.settings.get("n_drain", pending)
    found: dict[str, Any] = {}
    empty = _emptied(peer)
    if peer.entry.wants("enqueue"):
        found |= _submit(peer, pending, singly, whole=full or jobs == pending)
        if "pending_memory" in found:
            found["pending_bytes"] = (found.pop("pending_memory") - empty) / pending
    if not peer.entry.wants("enqueue") or jobs != pending:
        peer.stop_producer()
        empty = _emptied(peer)
        peer.start_producer()
        peer.ask("bulk", start=0, n=jobs)
        peer.stop_producer()
    found |= _work_off(peer, jobs)
    time.sleep(0.1)
    found["finished_bytes"] = (peer.server.memory() - empty) / jobs
    return found


def _emptied(peer: Peer) -> int:
    """Empty the server; the memory that it takes then."""
    peer.server.flush()
    peer.forget()
    return peer.server.memory()


def _submit(peer: Peer, pending: int, singly: int, *, whole: bool) -> dict[str, Any]:
    """One by one for a while, and the rest in bulk, unless that would be one by one again for nothing."""
    server = peer.server
    peer.start_producer()
    before = server.counters()
    single = peer.ask("single", start=0, n=singly, budget=SINGLE_S)
    found = {
        "enqueue_single": single["n"] / single["s"],
        "enqueue_reads_per_job": server.counters().reads_since(before) / single["n"],
    }
    if whole or peer.bulk_kind != "none":
        bulk = peer.ask("bulk", start=single["n"], n=pending - single["n"])
        peer.bulk_kind = found["bulk_kind"] = bulk["kind"]
        found["enqueue_bulk"] = bulk["n"] / bulk["s"] if bulk["kind"] != "none" else None
        peer.stop_producer()
        time.sleep(0.1)  # a server frees the buffers of a client that has left
        found["pending_memory"] = server.memory()
    return found


def _work_off(peer: Peer, jobs: int) -> dict[str, Any]:
    """Let one worker do all jobs. What they cost is counted from the first tenth on, when it has warmed up."""
    server = peer.server
    spawned_at = time.time_ns()
    peer.start_worker()
    peer.wait_for_count(max(1, jobs // 10), TIMEOUT_S)
    count, worker_cpu, server_cpu, counters = peer.count(), peer.worker_cpu(), server.cpu(), server.counters()
    complete = peer.wait_for_count(jobs, TIMEOUT_S)
    measured = max(1, peer.count() - count)
    worker_cpu, server_cpu = peer.worker_cpu() - worker_cpu, server.cpu() - server_cpu
    time.sleep(0.3)  # the last acknowledgements
    after = server.counters()
    peer.stop_worker()
    began = [at for _, at in peer.records()]
    found: dict[str, Any] = {"check": _checked(peer, jobs), "complete": complete}
    if len(began) > 1:
        found["drain"] = (len(began) - 1) / ((max(began) - min(began)) / 1e9)
        found["spawn_to_first_job_s"] = (min(began) - spawned_at) / 1e9
    calls = {name: (many - counters.calls.get(name, 0)) / measured for name, many in after.calls.items()}
    calls.pop("info", None)
    most = sorted(calls.items(), key=lambda each: -each[1])[:12]
    return {
        **found,
        "worker_cpu_us_per_job": worker_cpu / measured * 1e6,
        "redis_cpu_us_per_job": server_cpu / measured * 1e6,
        "commands_per_job": after.commands_since(counters) / measured,
        "reads_per_job": after.reads_since(counters) / measured,
        "net_bytes_per_job": (after.net_bytes - counters.net_bytes) / measured,
        "top_commands": {name: round(many, 3) for name, many in most if many >= 0.005},
    }


def _checked(peer: Peer, expected: int) -> dict[str, int]:
    """What really ran: each job once, if all is well."""
    numbers = [number for number, _ in peer.records() if number < WARMING]
    unique = len(set(numbers))
    found = {
        "executed": len(numbers),
        "unique": unique,
        "expected": expected,
        "duplicates": len(numbers) - unique,
    }
    if unique != expected or len(numbers) != expected:
        log("!!", peer.entry.variant, "did not run each job once:", found)
    return found
