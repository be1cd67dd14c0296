"""Blocking reads of a worker's lanes and inbox, and the entries that were delivered."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from agentq.coordinator.storage.connection import CommandArgument
from agentq.coordinator.storage.keys import CONSUMER_GROUP
from agentq.coordinator.storage.store import NamespaceStore

WatchedStreams = dict[str, tuple[int, str | None]]
"""Keys to block on, each with the partition and lane that it stands for; an inbox has no lane."""


class StreamReader(Protocol):
    """A wait of one thread that others can end."""

    @property
    def is_spread(self) -> bool: ...

    def unblock(self) -> None: ...

    def close(self) -> None: ...


def blocking_read_command(worker: str, streams: Iterable[str], block_ms: int) -> list[CommandArgument]:
    """The command by which a worker blocks on these keys."""
    keys = list(streams)
    words: list[CommandArgument] = ["XREADGROUP", "GROUP", CONSUMER_GROUP, worker, "COUNT", 1, "BLOCK", block_ms]
    return [*words, "STREAMS", *keys, *(">" for _ in keys)]


def read_pending_entries(
    store: NamespaceStore, partition: int, worker: str, lanes: Sequence[str]
) -> list[tuple[str, str]]:
    """The entries of these lanes in a worker's pending list, as (lane, entry)."""
    keys = {store.key(partition, "lane", lane): lane for lane in lanes}
    reply = store.connection.command(
        "XREADGROUP", "GROUP", CONSUMER_GROUP, worker, "STREAMS", *keys, *("0" for _ in keys)
    )
    return [(keys[key], entry) for key, entries in reply or () for entry, _ in entries]
