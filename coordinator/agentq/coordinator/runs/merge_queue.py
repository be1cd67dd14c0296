"""Merge queues: attempts that want to move a branch take turns.

The line saves work, and decides nothing: who moves a branch does so by compare-and-swap, and looks for its marker
first. Whoever stands there holds its run, for a run leaves the line in the script by which it leaves its worker. So the
first is alive as far as anybody knows, and needs no lease beside its worker's. The next one is told by the order
`merge`, and may ask besides. A partition has lines of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple

from agentq.coordinator.errors import refusal_error
from agentq.coordinator.model.ids import partition_of
from agentq.coordinator.storage.store import NamespaceStore

MERGE_ORDER = "merge"
"""The order by which the next of a line is told; its detail is the line."""


class MergeQueueEntry(NamedTuple):
    """Another one in the line, and what it brings: a commit, and where in the repository of the line that is."""

    run: str
    commit: str
    ref: str


@dataclass(frozen=True, slots=True)
class MergeQueuePosition:
    """Where an attempt stands in a line."""

    place: int
    """How many stand before it."""
    holder: str
    """Whose turn it is."""
    others: tuple[MergeQueueEntry, ...]
    """For the holder: those that come next, the first first, up to `MERGE_QUEUE_SHOWN` of them."""

    @property
    def yours(self) -> bool:
        return self.place == 0


def merge_queue_id(repository: str, target: str) -> str:
    """The line of a branch. The repository is named so that it is the same one wherever the name is the same."""
    return blake2b(f"{repository}\n{target}".encode(), digest_size=10).hexdigest()


def enter_merge_queue(
    store: NamespaceStore, run_id: str, fence: str, line: str, commit: str, ref: str
) -> MergeQueuePosition:
    """Stand in a line, or learn how it goes on there."""
    reply = store.call("merge/enter_queue", partition_of(run_id), run_id, fence, line, commit, ref)
    if isinstance(reply, str):
        raise refusal_error(reply, f"run {run_id}") or AssertionError(reply)
    _, place, holder, *flat = reply
    others = tuple(MergeQueueEntry(*flat[at : at + 3]) for at in range(0, len(flat), 3))
    return MergeQueuePosition(int(place), holder, others)
