"""Finds sessions by name: the partition of one, and the most similar existing name.

It stands here, and not with the verbs of sessions, because the submit of a turn needs it too.
"""

from __future__ import annotations

from difflib import get_close_matches
from zlib import crc32

from agentq.coordinator.bounds import LIST_PER_CALL
from agentq.coordinator.storage.store import NamespaceStore


def session_partition(store: NamespaceStore, name: str) -> int:
    """The partition of a session, from its name; other records that are found by a session's name live there too."""
    return crc32(name.encode()) % store.keyspace.partitions


def suggest_session(store: NamespaceStore, name: str) -> str:
    """A question that names the session of the most similar name; empty if no name is similar."""
    names = [
        each
        for partition in store.partitions()
        for each in store.connection.command("ZRANGE", store.key(partition, "sessions"), 0, LIST_PER_CALL - 1, "REV")
    ]
    matches = get_close_matches(name, names, 1)
    return f" Did you mean {matches[0]}?" if matches else ""
