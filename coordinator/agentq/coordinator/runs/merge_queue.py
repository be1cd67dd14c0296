"""Merge queues: attempts that want to move a branch take turns.

The queue only saves work: an attempt moves a branch by compare-and-swap and looks for its own marker first. Every
attempt in the queue holds its run, for a run leaves the queue in the script by which it leaves its worker. So the first
needs no lease beside its worker's. The next one is notified by the order `merge`, and may ask as well. Each partition
has queues of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple

from agentq.coordinator.errors import refusal_error
from agentq.coordinator.model.ids import partition_of
from agentq.coordinator.storage.store import NamespaceStore

MERGE_ORDER = "merge"
"""The order that notifies the next attempt in a merge queue; its detail is the queue's name."""


class MergeQueueEntry(NamedTuple):
    """Another attempt in the queue, with its commit and the ref of that in the repository."""

    run: str
    commit: str
    ref: str


@dataclass(frozen=True, slots=True)
class MergeQueuePosition:
    """The position of an attempt in a merge queue."""

    place: int
    """The number of attempts before it."""
    holder: str
    """The first attempt in the queue."""
    others: tuple[MergeQueueEntry, ...]
    """For the holder: the next attempts in order, up to `MERGE_QUEUE_SHOWN` of them."""

    @property
    def yours(self) -> bool:
        return self.place == 0


def merge_queue_id(repository: str, target: str) -> str:
    """The name of a branch's merge queue. Equal repository names must mean the same repository."""
    return blake2b(f"{repository}\n{target}".encode(), digest_size=10).hexdigest()


def enter_merge_queue(
    store: NamespaceStore, run_id: str, fence: str, line: str, commit: str, ref: str
) -> MergeQueuePosition:
    """Enter a merge queue, or read the position in it."""
    reply = store.call("merge/enter_queue", partition_of(run_id), run_id, fence, line, commit, ref)
    if isinstance(reply, str):
        raise refusal_error(reply, f"run {run_id}") or AssertionError(reply)
    _, place, holder, *flat = reply
    others = tuple(MergeQueueEntry(*flat[at : at + 3]) for at in range(0, len(flat), 3))
    return MergeQueuePosition(int(place), holder, others)
