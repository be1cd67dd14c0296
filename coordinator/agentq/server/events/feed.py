"""A replayable buffer of events for any number of readers in this process.

While there are readers, the newest events are kept once for all, each with the queue, plan and session of its run. A
reader has a position and no buffer: a slow one falls behind and reads the missed events from the store, a page at a
time. If the store has dropped events that a reader has not seen, the reader is told of the gap.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import islice

from pydantic_core import to_json

from agentq.coordinator.errors import AgentqError, Invalid, TryLater
from agentq.coordinator.events.event_filter import EventFilter, LocatedEvent, RunLocator
from agentq.coordinator.events.stream import STREAM_START, Event, PartitionEvents, event_sort_key
from agentq.coordinator.model.field_types import ENTRY_ID_PATTERN
from agentq.coordinator.storage.store import NamespaceStore
from agentq.server.events.hub import EventHub, EventWatch, WatchedEvents
from agentq.server.thread_pool import CallInThread

KEPT_EVENTS_MAX = 5_000
"""Events kept for readers that keep up."""
QUEUED_EVENTS_MAX = 1_000
"""Events queued from the hub."""
EVENTS_PER_STEP = 100
"""Events that a reader handles in one step, which bounds what is buffered for a slow client."""
EVENTS_PER_PAGE = 500
"""Events read from a partition at once."""
CATCH_UPS_MAX = 4
"""Readers that read from the store at the same time."""
OUTAGE_PAUSE_S = 1.0
BATCH_WINDOW_S = 0.02
WATCH_TIMEOUT_S = 30.0

READERS_MAX = 5_000

_POSITION_PATTERN = re.compile(rf"{ENTRY_ID_PATTERN.strip('^$')}(/[0-9]{{1,9}})?")

log = logging.getLogger("agentq.server")
Positions = dict[int, str]
"""The id of the last event seen, by partition."""


class FeedItem:
    """A buffered event, and the positions after it. It is encoded once for all readers."""

    def __init__(self, event: LocatedEvent, position: str) -> None:
        self.event = event
        self.position = position

    @cached_property
    def json_text(self) -> str:
        """The event as JSON."""
        return to_json(self.event.public_json()).decode()


@dataclass(frozen=True, slots=True)
class FeedBatch:
    """One step of a reader: the events that pass its filter, each with the position after it, and its own position."""

    items: list[tuple[str, FeedItem]]
    position: str
    gap: str = ""
    """The reader's position before missed events that are gone; empty without a gap."""


@dataclass(slots=True)
class _Page:
    items: list[tuple[int, FeedItem]] = field(default_factory=list)
    positions: Positions = field(default_factory=dict)
    gap: bool = False


class EventFeed:
    """The event buffer of this process."""

    def __init__(self, event_hub: EventHub, call_in_thread: CallInThread, *, kept: int = KEPT_EVENTS_MAX) -> None:
        self.event_hub = event_hub
        self.store: NamespaceStore = event_hub.store
        self._call_in_thread = call_in_thread
        self._kept = kept
        self._run_locator = RunLocator(self.store)
        self._buffer: deque[FeedItem] = deque()
        self._first_number = 0
        """The number of the oldest buffered item."""
        self._positions_before: Positions = {}
        """The positions before that item."""
        self._positions: Positions = {}
        self._readers = 0
        self._changed: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._catching_up = asyncio.Semaphore(CATCH_UPS_MAX)

    # ---- for readers

    async def positions(self, after: str | None, partitions: Iterable[int] | None = None) -> Positions:
        """Parse positions, or read the current ones; of all partitions or of some."""
        which = list(self.store.partitions() if partitions is None else partitions)
        if after is not None:
            return parse_positions(after, which)
        now: Positions = await self._call_in_thread(partial(read_last_positions, self.store, which))
        return now

    @contextmanager
    def reader(self, event_filter: EventFilter, positions: Positions) -> Iterator[FeedReader]:
        """Add a reader that starts at these positions."""
        if self._readers >= READERS_MAX:
            raise TryLater("As many read the events of this server as may; try again in a moment.")
        self._readers += 1
        if self._task is None:
            self._task = asyncio.create_task(self._read(), name="agentq-feed")
        try:
            yield FeedReader(self, event_filter, dict(positions))
        finally:
            self._remove_reader()

    def _remove_reader(self) -> None:
        """Remove a reader; after the last one, stop reading."""
        self._readers -= 1
        if not self._readers and self._task is not None:
            self._task.cancel()
            self._task = None
            self._buffer.clear()
            self._positions_before, self._positions = {}, {}

    def changed(self) -> asyncio.Future[None]:
        """A future that is done once an item is added or the server stops. Get it before reading."""
        if self._changed is None:
            self._changed = asyncio.get_running_loop().create_future()
            if self.event_hub.closing:
                self._changed.set_result(None)
        return self._changed

    def number_after(self, positions: Positions) -> int | None:
        """The number of the first item that may come after these positions; None if older events are needed."""
        if not self._positions_before or _is_any_before(positions, self._positions_before):
            return None
        # A new reader has usually seen all buffered items, and starts behind them.
        return (
            self._first_number if _is_any_before(positions, self._positions) else self._first_number + len(self._buffer)
        )

    def items(self, number: int) -> tuple[int, list[FeedItem]]:
        """Items from a number on, and the number after them; -1 if the first one is no longer buffered."""
        if number < self._first_number:
            return -1, []
        end = min(number + EVENTS_PER_STEP, self._first_number + len(self._buffer))
        # By index: nearly all readers are near the end, where indexing a deque is fast.
        return max(number, end), [self._buffer[at - self._first_number] for at in range(number, end)]

    async def page(self, positions: Positions) -> _Page:
        """The next events after these positions in the store, up to a limit."""
        async with self._catching_up:
            found: _Page = await self._call_in_thread(
                partial(_read_page, self.store, self._run_locator, dict(positions))
            )
            return found

    # ---- its own reading

    async def _read(self) -> None:
        """Follow the hub. After an outage or a gap in the hub's events, read from the store."""
        with self.event_hub.watch_all(QUEUED_EVENTS_MAX) as watch:
            while True:
                try:
                    if not self._positions:
                        everything = list(self.store.partitions())
                        now = await self._call_in_thread(partial(read_last_positions, self.store, everything))
                        self._positions_before, self._positions = dict(now), now
                        # A reader that read earlier has not seen the events since.
                        self._notify_readers()
                    batch = await self._collect_events(watch)
                    if self.event_hub.closing:
                        break
                    while not await self._append_events(batch.events, from_store=not batch.events or batch.missed):
                        pass
                except AgentqError as fault:
                    log.warning("reading events failed; will retry", extra={"fields": {"why": str(fault)}})
                except Exception:  # an error in one event must not block the readers for ever
                    log.exception("reading events failed; will retry")
                else:
                    continue
                # The events of this batch are lost here; the store still has them.
                watch.notify()
                await asyncio.sleep(OUTAGE_PAUSE_S)
        self._notify_readers()

    async def _collect_events(self, watch: EventWatch) -> WatchedEvents:
        """The next events, together with those that follow within BATCH_WINDOW_S.

        Most events of a run occur within milliseconds. Sent together they cost one write for each reader, and requests
        that wait for a run are served before streams.
        """
        first = await watch.next(WATCH_TIMEOUT_S)
        if not first.events or self.event_hub.closing:
            return first
        await asyncio.sleep(BATCH_WINDOW_S)
        then = await watch.next(0)
        return WatchedEvents(first.events + then.events, first.missed or then.missed)

    async def _append_events(self, events: list[Event], *, from_store: bool) -> bool:
        """Append events to the buffer; whether there are no more in the store."""
        if from_store:
            page: _Page = await self._call_in_thread(
                partial(_read_page, self.store, self._run_locator, dict(self._positions))
            )
        else:
            fresh = [
                event for event in events if event_sort_key(event.id) > event_sort_key(self._positions[event.partition])
            ]
            page = await self._call_in_thread(partial(_locate_events, self._run_locator, fresh))
        for partition, item in page.items:
            self._positions[partition] = item.event.id
            item.position = format_positions(self._positions)
            self._buffer.append(item)
        for partition, position in page.positions.items():
            self._positions[partition] = max(self._positions[partition], position, key=event_sort_key)
        if page.gap:
            # Start an empty buffer, so that each reader reads the store and learns of the gap there.
            self._first_number += len(self._buffer) + 1
            self._buffer.clear()
            self._positions_before = dict(self._positions)
        while len(self._buffer) > self._kept:
            dropped = self._buffer.popleft()
            self._positions_before[dropped.event.partition] = dropped.event.id
            self._first_number += 1
        if page.items or page.gap:
            self._notify_readers()
        return not from_store or len(page.items) < EVENTS_PER_PAGE

    def _notify_readers(self) -> None:
        changed, self._changed = self._changed, None
        if changed is not None and not changed.done():
            changed.set_result(None)


class FeedReader:
    """A reader of the feed, and its position."""

    def __init__(self, feed: EventFeed, event_filter: EventFilter, positions: Positions) -> None:
        self.event_filter = event_filter
        self._feed = feed
        self._positions = positions
        self._next_number: int | None = None
        self._is_caught_up = False
        """Whether its positions equal those of the feed, so that items carry the right position already."""

    @property
    def position(self) -> str:
        """Its position, for `Last-Event-ID`."""
        return format_positions(self._positions)

    async def next(self, timeout_s: float) -> FeedBatch:
        """The next batch; an empty one after `timeout_s` without events."""
        changed = self._feed.changed()
        batch = await self._step()
        if batch is None:
            await asyncio.wait({changed}, timeout=timeout_s)
            batch = await self._step()
        return batch or FeedBatch([], self.position)

    async def _step(self) -> FeedBatch | None:
        if self._next_number is not None:
            number, items = self._feed.items(self._next_number)
            if number >= 0:
                self._next_number = number
                return self._read_items(items) if items else None
        self._next_number, self._is_caught_up = self._feed.number_after(self._positions), False
        if self._next_number is not None:
            return await self._step()
        before = self.position
        page = await self._feed.page(self._positions)
        found = [self._advance(item) for _, item in page.items]
        for partition, position in page.positions.items():
            self._positions[partition] = max(self._positions[partition], position, key=event_sort_key)
        kept = [(position, item) for position, item in found if self.event_filter.takes(item.event)]
        if not found and not page.gap:
            return None
        return FeedBatch(kept, self.position, before if page.gap else "")

    def _read_items(self, items: list[FeedItem]) -> FeedBatch:
        kept = []
        for item in items:
            event = item.event
            if self._is_caught_up:
                self._positions[event.partition] = event.id
                position = item.position
            else:
                known = self._positions.get(event.partition)
                if known is None or event_sort_key(event.id) <= event_sort_key(known):
                    continue
                position, _ = self._advance(item)
                self._is_caught_up = position == item.position
            if self.event_filter.takes(event):
                kept.append((position, item))
        return FeedBatch(kept, self.position)

    def _advance(self, item: FeedItem) -> tuple[str, FeedItem]:
        self._positions[item.event.partition] = item.event.id
        return self.position, item


def _is_any_before(positions: Positions, others: Positions) -> bool:
    """Whether one of the positions is before the other in its partition."""
    return any(
        event_sort_key(position) < event_sort_key(others[partition]) for partition, position in positions.items()
    )


def parse_positions(text: str, partitions: list[int]) -> Positions:
    """Parse the positions in a client's text."""
    if text == STREAM_START:
        return dict.fromkeys(partitions, STREAM_START)
    parts = text.split(",")
    if len(parts) != len(partitions):
        raise Invalid(
            f"{text[:80]!r} is not a position in the events: it has {len(parts)} parts for {len(partitions)}."
        )
    for part in parts:
        if not _POSITION_PATTERN.fullmatch(part):
            raise Invalid(f"{part[:80]!r} is not a position in the events; one looks like 1700000000000-0.")
    return dict(zip(partitions, parts, strict=True))


def format_positions(positions: Mapping[int, str]) -> str:
    """The positions as text."""
    return ",".join(positions[partition] for partition in sorted(positions))


def read_last_positions(store: NamespaceStore, partitions: Iterable[int]) -> Positions:
    """The current ends of the event streams of these partitions."""
    return {partition: PartitionEvents(store, partition).last_id() for partition in partitions}


def _read_page(store: NamespaceStore, run_locator: RunLocator, positions: Positions) -> _Page:
    """The next events of each partition, and the positions after them; ordered by time as far as all partitions were
    read."""
    page, bounds = _Page(), []
    for partition, after in positions.items():
        events = PartitionEvents(store, partition)
        if events.missed(after):
            page.gap = True
        found = list(islice(events.replay(after), EVENTS_PER_PAGE))
        page.items += [(partition, FeedItem(event, "")) for event in run_locator.located(partition, found)]
        if found:
            page.positions[partition] = found[-1].id
        if len(found) == EVENTS_PER_PAGE:
            bounds.append(found[-1].at_ms)
    page.items.sort(key=lambda each: (each[1].event.at_ms, each[0], event_sort_key(each[1].event.id)))
    if bounds and len(positions) > 1:
        page.items = [each for each in page.items if each[1].event.at_ms <= min(bounds)]
        page.positions = {partition: item.event.id for partition, item in page.items}
    return page


def _locate_events(run_locator: RunLocator, events: list[Event]) -> _Page:
    page = _Page()
    for partition in dict.fromkeys(event.partition for event in events):
        own_events = [event for event in events if event.partition == partition]
        page.items += [(partition, FeedItem(event, "")) for event in run_locator.located(partition, own_events)]
    return page
