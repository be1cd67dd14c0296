"""Leases that end when a test says so, and not when a slow machine has let one run out."""

from __future__ import annotations

from agentq.coordinator.storage.store import NamespaceStore


def end_lease(store: NamespaceStore, worker: str) -> bool:
    """A worker's lease is over, for a reaper that has watched the server for as long as it takes to judge.

    To be said again and again until it is seen: a reaper that was held up begins to watch anew. It is always true.
    """
    for partition in store.partitions():
        store.connection.command("HSET", store.key(partition, "reaper_watch"), "since_ms", 0)
        store.connection.command("DEL", store.key(partition, "worker_lease", worker))
        store.connection.command("ZADD", store.key(partition, "workers"), "XX", 1, worker)
    return True
