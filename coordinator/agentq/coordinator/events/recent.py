"""The newest events of all partitions, or of one run, and where to go on after them."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from agentq.coordinator.events.stream import STREAM_START, Event, PartitionEvents, event_sort_key
from agentq.coordinator.model.ids import partition_of
from agentq.coordinator.storage.store import NamespaceStore

if TYPE_CHECKING:
    from agentq.coordinator.events.event_filter import EventFilter

LOCATED_AT_ONCE = 500
"""Events whose runs are looked up together."""


class RecentEvents(NamedTuple):
    """Events in the order of their times, and the place in all partitions after them."""

    events: list[Event]
    position: str


def read_recent_events(
    store: NamespaceStore,
    limit: int,
    *,
    since_ms: int = 0,
    run_id: str | None = None,
    within: EventFilter | None = None,
) -> RecentEvents:
    """The newest events that have happened already, at most `limit`; with `within`, only those that it takes."""
    ends = {partition: PartitionEvents(store, partition).last_id() for partition in store.partitions()}
    position = ",".join(ends[partition] for partition in sorted(ends))
    if not limit:
        return RecentEvents([], position)
    partitions = ends if run_id is None else {partition_of(run_id): ends[partition_of(run_id)]}
    found: list[Event] = []
    for partition, end in partitions.items():
        reader = PartitionEvents(store, partition)
        start = reader.position_before_newest(limit) if run_id is None and within is None else STREAM_START
        if since_ms > 0:
            start = max(start, f"{since_ms - 1}-0", key=event_sort_key)
        events = (event for event in _read_until(reader.replay(start), end) if run_id in (None, event.run))
        found += heapq.nlargest(limit, events if within is None else _filter(store, within, events), key=_event_order)
    return RecentEvents(sorted(found, key=_event_order)[-limit:], position)


def _read_until(events: Iterator[Event], end: str) -> Iterator[Event]:
    for event in events:
        yield event
        if event.id == end:
            return


def _filter(store: NamespaceStore, within: EventFilter, events: Iterator[Event]) -> Iterator[Event]:
    from agentq.coordinator.events.event_filter import RunLocator

    locator = RunLocator(store)
    while some := list(islice(events, LOCATED_AT_ONCE)):
        located = locator.located(some[0].partition, some)
        yield from (event for event, place in zip(some, located, strict=True) if within.takes(place))


def _event_order(event: Event) -> tuple[int, int, int, int]:
    at_ms, number, place = event_sort_key(event.id)
    return at_ms, event.partition, number, place
