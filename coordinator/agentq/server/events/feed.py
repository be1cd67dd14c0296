"""Events for any number of readers in this process, each from the place that it has come to, and none of them costly.

The newest events are kept once for all readers, with where their runs belong, while anybody reads. A reader is a place,
and nothing is kept for it: one that is slow falls behind, and gets what it has missed from the store, a page at a time,
at its own pace. Where the store has dropped events that it had yet to see, it is told of the gap.
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
"""Events that are kept for the readers that keep up."""
QUEUED_EVENTS_MAX = 1_000
"""Events that may be on their way from the tides."""
EVENTS_PER_STEP = 100
"""Events that a reader looks at in one step: what is on its way to one that is slow is of that size."""
EVENTS_PER_PAGE = 500
"""Events of a partition that the store is asked for at once."""
CATCH_UPS_MAX = 4
"""Readers that ask the store at the same time."""
OUTAGE_PAUSE_S = 1.0
BATCH_WINDOW_S = 0.02
WATCH_TIMEOUT_S = 30.0

READERS_MAX = 5_000

_POSITION_PATTERN = re.compile(rf"{ENTRY_ID_PATTERN.strip('^$')}(/[0-9]{{1,9}})?")

log = logging.getLogger("agentq.server")
Positions = dict[int, str]
"""By partition, the id of the last event that was seen."""


class FeedItem:
    """An event that is kept, and the places after it. It is put into words once, for all who are told."""

    def __init__(self, event: LocatedEvent, position: str) -> None:
        self.event = event
        self.position = position

    @cached_property
    def json_text(self) -> str:
        """The event as JSON."""
        return to_json(self.event.told()).decode()


@dataclass(frozen=True, slots=True)
class FeedBatch:
    """What a reader gets in one step: what interests it, each with the place after it, and where it is now."""

    items: list[tuple[str, FeedItem]]
    position: str
    gap: str = ""
    """Where it was, if events after that are gone that it has not seen."""


@dataclass(slots=True)
class _Page:
    items: list[tuple[int, FeedItem]] = field(default_factory=list)
    positions: Positions = field(default_factory=dict)
    gap: bool = False


class EventFeed:
    """The events of this process."""

    def __init__(self, event_hub: EventHub, call_in_thread: CallInThread, *, kept: int = KEPT_EVENTS_MAX) -> None:
        self.event_hub = event_hub
        self.store: NamespaceStore = event_hub.store
        self._call_in_thread = call_in_thread
        self._kept = kept
        self._run_locator = RunLocator(self.store)
        self._buffer: deque[FeedItem] = deque()
        self._first_number = 0
        """The number of the oldest item that is kept."""
        self._positions_before: Positions = {}
        """The places before that one."""
        self._positions: Positions = {}
        self._readers = 0
        self._changed: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._catching_up = asyncio.Semaphore(CATCH_UPS_MAX)

    # ---- for readers

    async def positions(self, after: str | None, partitions: Iterable[int] | None = None) -> Positions:
        """The places that a text says, or those of now; of all partitions, or of some."""
        which = list(self.store.partitions() if partitions is None else partitions)
        if after is not None:
            return parse_positions(after, which)
        now: Positions = await self._call_in_thread(partial(read_last_positions, self.store, which))
        return now

    @contextmanager
    def reader(self, event_filter: EventFilter, positions: Positions) -> Iterator[FeedReader]:
        """Somebody who reads from these places on."""
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
        """Nothing is read any more once all readers are gone."""
        self._readers -= 1
        if not self._readers and self._task is not None:
            self._task.cancel()
            self._task = None
            self._buffer.clear()
            self._positions_before, self._positions = {}, {}

    def changed(self) -> asyncio.Future[None]:
        """What is done once something is added, or the server is to end. Ask for it before you look."""
        if self._changed is None:
            self._changed = asyncio.get_running_loop().create_future()
            if self.event_hub.closing:
                self._changed.set_result(None)
        return self._changed

    def number_after(self, positions: Positions) -> int | None:
        """The number of the first item that may come after these places; None if older ones are wanted."""
        if not self._positions_before or _is_any_before(positions, self._positions_before):
            return None
        # Whoever has seen all that is kept, as most who come have, need not pass over it.
        return (
            self._first_number if _is_any_before(positions, self._positions) else self._first_number + len(self._buffer)
        )

    def items(self, number: int) -> tuple[int, list[FeedItem]]:
        """Items from a number on, and the number after them; -1 if the first of them is not kept any more."""
        if number < self._first_number:
            return -1, []
        end = min(number + EVENTS_PER_STEP, self._first_number + len(self._buffer))
        # By index, since nearly all who ask are near the end, from where a deque counts as well.
        return max(number, end), [self._buffer[at - self._first_number] for at in range(number, end)]

    async def page(self, positions: Positions) -> _Page:
        """What the store has after these places, up to a bound."""
        async with self._catching_up:
            found: _Page = await self._call_in_thread(
                partial(_read_page, self.store, self._run_locator, dict(positions))
            )
            return found

    # ---- its own reading

    async def _read(self) -> None:
        """Follow what happens. After an outage, or what the tides could not tell, the store is asked."""
        with self.event_hub.watch_all(QUEUED_EVENTS_MAX) as watch:
            while True:
                try:
                    if not self._positions:
                        everything = list(self.store.partitions())
                        now = await self._call_in_thread(partial(read_last_positions, self.store, everything))
                        self._positions_before, self._positions = dict(now), now
                        # Who has looked before has not seen what happened since.
                        self._notify_readers()
                    batch = await self._collect_events(watch)
                    if self.event_hub.closing:
                        break
                    while not await self._append_events(batch.events, from_store=not batch.events or batch.missed):
                        pass
                except AgentqError as fault:
                    log.warning("the events cannot be read", extra={"fields": {"why": str(fault)}})
                except Exception:  # whoever reads must not wait for ever because of one event
                    log.exception("the events cannot be read")
                else:
                    continue
                # What was told is gone with the fault; the store still has it.
                watch.notify()
                await asyncio.sleep(OUTAGE_PAUSE_S)
        self._notify_readers()

    async def _collect_events(self, watch: EventWatch) -> WatchedEvents:
        """What happened, with what happened right after it.

        Most of what happens to a run happens within milliseconds; told together, it costs one write for each reader,
        and those who wait for a run to do are served before those who look on.
        """
        first = await watch.next(WATCH_TIMEOUT_S)
        if not first.events or self.event_hub.closing:
            return first
        await asyncio.sleep(BATCH_WINDOW_S)
        then = await watch.next(0)
        return WatchedEvents(first.events + then.events, first.missed or then.missed)

    async def _append_events(self, events: list[Event], *, from_store: bool) -> bool:
        """Add what happened; whether that was all."""
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
            # What is kept begins anew, so that every reader asks the store, and hears of the gap from there.
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
    """Somebody who reads events, and the place that it has come to."""

    def __init__(self, feed: EventFeed, event_filter: EventFilter, positions: Positions) -> None:
        self.event_filter = event_filter
        self._feed = feed
        self._positions = positions
        self._next_number: int | None = None
        self._is_caught_up = False
        """Whether its places are those of the feed, so that they need not be put together for it."""

    @property
    def position(self) -> str:
        """Where it is, for `Last-Event-ID`."""
        return format_positions(self._positions)

    async def next(self, timeout_s: float) -> FeedBatch:
        """What there is, or comes within a time, of interest or not; an empty batch then."""
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
    """Whether one of the places is before that of the others in its partition."""
    return any(
        event_sort_key(position) < event_sort_key(others[partition]) for partition, position in positions.items()
    )


def parse_positions(text: str, partitions: list[int]) -> Positions:
    """The places that a reader came with."""
    if text == STREAM_START:
        return dict.fromkeys(partitions, STREAM_START)
    parts = text.split(",")
    if len(parts) != len(partitions):
        raise Invalid(f"{text[:80]!r} is not a place in these events: it has {len(parts)} parts for {len(partitions)}.")
    for part in parts:
        if not _POSITION_PATTERN.fullmatch(part):
            raise Invalid(f"{part[:80]!r} is not a place in these events; one looks like 1700000000000-0.")
    return dict(zip(partitions, parts, strict=True))


def format_positions(positions: Mapping[int, str]) -> str:
    """The same as text."""
    return ",".join(positions[partition] for partition in sorted(positions))


def read_last_positions(store: NamespaceStore, partitions: Iterable[int]) -> Positions:
    """Where the events of these partitions end at the moment."""
    return {partition: PartitionEvents(store, partition).last_id() for partition in partitions}


def _read_page(store: NamespaceStore, run_locator: RunLocator, positions: Positions) -> _Page:
    """The next events of each partition, and up to where they are; of several partitions, in the order of their times
    as far as all of them are known."""
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
