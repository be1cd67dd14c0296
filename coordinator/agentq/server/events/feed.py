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

    def __init__(self, event: LocatedEvent, place: str) -> None:
        self.event = event
        self.place = place

    @cached_property
    def words(self) -> str:
        """The event as JSON."""
        return to_json(self.event.told()).decode()


@dataclass(frozen=True, slots=True)
class FeedBatch:
    """What a reader gets in one step: what interests it, each with the place after it, and where it is now."""

    items: list[tuple[str, FeedItem]]
    place: str
    gap: str = ""
    """Where it was, if events after that are gone that it has not seen."""


@dataclass(slots=True)
class _Page:
    items: list[tuple[int, FeedItem]] = field(default_factory=list)
    places: Positions = field(default_factory=dict)
    gap: bool = False


class EventFeed:
    """The events of this process."""

    def __init__(self, tides: EventHub, call: CallInThread, *, kept: int = KEPT_EVENTS_MAX) -> None:
        self.tides = tides
        self.store: NamespaceStore = tides.store
        self._call = call
        self._kept = kept
        self._whereabouts = RunLocator(self.store)
        self._ring: deque[FeedItem] = deque()
        self._first = 0
        """The number of the oldest item that is kept."""
        self._before: Positions = {}
        """The places before that one."""
        self._now: Positions = {}
        self._readers = 0
        self._news: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._catching_up = asyncio.Semaphore(CATCH_UPS_MAX)

    # ---- for readers

    async def places(self, after: str | None, partitions: Iterable[int] | None = None) -> Positions:
        """The places that a text says, or those of now; of all partitions, or of some."""
        which = list(self.store.partitions() if partitions is None else partitions)
        if after is not None:
            return parse_positions(after, which)
        now: Positions = await self._call(partial(read_last_positions, self.store, which))
        return now

    @contextmanager
    def reader(self, interest: EventFilter, places: Positions) -> Iterator[FeedReader]:
        """Somebody who reads from these places on."""
        if self._readers >= READERS_MAX:
            raise TryLater("As many read the events of this server as may; try again in a moment.")
        self._readers += 1
        if self._task is None:
            self._task = asyncio.create_task(self._read(), name="agentq-feed")
        try:
            yield FeedReader(self, interest, dict(places))
        finally:
            self._left()

    def _left(self) -> None:
        """Nothing is read any more once all readers are gone."""
        self._readers -= 1
        if not self._readers and self._task is not None:
            self._task.cancel()
            self._task = None
            self._ring.clear()
            self._before, self._now = {}, {}

    def news(self) -> asyncio.Future[None]:
        """What is done once something is added, or the server is to end. Ask for it before you look."""
        if self._news is None:
            self._news = asyncio.get_running_loop().create_future()
            if self.tides.closing:
                self._news.set_result(None)
        return self._news

    def number_after(self, places: Positions) -> int | None:
        """The number of the first item that may come after these places; None if older ones are wanted."""
        if not self._before or _is_any_before(places, self._before):
            return None
        # Whoever has seen all that is kept, as most who come have, need not pass over it.
        return self._first if _is_any_before(places, self._now) else self._first + len(self._ring)

    def items(self, number: int) -> tuple[int, list[FeedItem]]:
        """Items from a number on, and the number after them; -1 if the first of them is not kept any more."""
        if number < self._first:
            return -1, []
        end = min(number + EVENTS_PER_STEP, self._first + len(self._ring))
        # By index, since nearly all who ask are near the end, from where a deque counts as well.
        return max(number, end), [self._ring[at - self._first] for at in range(number, end)]

    async def page(self, places: Positions) -> _Page:
        """What the store has after these places, up to a bound."""
        async with self._catching_up:
            found: _Page = await self._call(partial(_read_page, self.store, self._whereabouts, dict(places)))
            return found

    # ---- its own reading

    async def _read(self) -> None:
        """Follow what happens. After an outage, or what the tides could not tell, the store is asked."""
        with self.tides.of_everything(QUEUED_EVENTS_MAX) as watch:
            while True:
                try:
                    if not self._now:
                        everything = list(self.store.partitions())
                        now = await self._call(partial(read_last_positions, self.store, everything))
                        self._before, self._now = dict(now), now
                        # Who has looked before has not seen what happened since.
                        self._tell()
                    news = await self._news_of(watch)
                    if self.tides.closing:
                        break
                    while not await self._take(news.events, asked=not news.events or news.missed):
                        pass
                except AgentqError as fault:
                    log.warning("the events cannot be read", extra={"fields": {"why": str(fault)}})
                except Exception:  # whoever reads must not wait for ever because of one event
                    log.exception("the events cannot be read")
                else:
                    continue
                # What was told is gone with the fault; the store still has it.
                watch.ring()
                await asyncio.sleep(OUTAGE_PAUSE_S)
        self._tell()

    async def _news_of(self, watch: EventWatch) -> WatchedEvents:
        """What happened, with what happened right after it.

        Most of what happens to a run happens within milliseconds; told together, it costs one write for each reader,
        and those who wait for a run to do are served before those who look on.
        """
        first = await watch.next(WATCH_TIMEOUT_S)
        if not first.events or self.tides.closing:
            return first
        await asyncio.sleep(BATCH_WINDOW_S)
        then = await watch.next(0)
        return WatchedEvents(first.events + then.events, first.missed or then.missed)

    async def _take(self, events: list[Event], *, asked: bool) -> bool:
        """Add what happened; whether that was all."""
        if asked:
            page: _Page = await self._call(partial(_read_page, self.store, self._whereabouts, dict(self._now)))
        else:
            fresh = [event for event in events if event_sort_key(event.id) > event_sort_key(self._now[event.partition])]
            page = await self._call(partial(_locate_events, self._whereabouts, fresh))
        for partition, item in page.items:
            self._now[partition] = item.event.id
            item.place = format_positions(self._now)
            self._ring.append(item)
        for partition, place in page.places.items():
            self._now[partition] = max(self._now[partition], place, key=event_sort_key)
        if page.gap:
            # What is kept begins anew, so that every reader asks the store, and hears of the gap from there.
            self._first += len(self._ring) + 1
            self._ring.clear()
            self._before = dict(self._now)
        while len(self._ring) > self._kept:
            gone = self._ring.popleft()
            self._before[gone.event.partition] = gone.event.id
            self._first += 1
        if page.items or page.gap:
            self._tell()
        return not asked or len(page.items) < EVENTS_PER_PAGE

    def _tell(self) -> None:
        news, self._news = self._news, None
        if news is not None and not news.done():
            news.set_result(None)


class FeedReader:
    """Somebody who reads events, and the place that it has come to."""

    def __init__(self, feed: EventFeed, interest: EventFilter, places: Positions) -> None:
        self.interest = interest
        self._feed = feed
        self._places = places
        self._number: int | None = None
        self._level = False
        """Whether its places are those of the feed, so that they need not be put together for it."""

    @property
    def place(self) -> str:
        """Where it is, for `Last-Event-ID`."""
        return format_positions(self._places)

    async def next(self, timeout_s: float) -> FeedBatch:
        """What there is, or comes within a time, of interest or not; an empty batch then."""
        news = self._feed.news()
        batch = await self._step()
        if batch is None:
            await asyncio.wait({news}, timeout=timeout_s)
            batch = await self._step()
        return batch or FeedBatch([], self.place)

    async def _step(self) -> FeedBatch | None:
        if self._number is not None:
            number, items = self._feed.items(self._number)
            if number >= 0:
                self._number = number
                return self._passed(items) if items else None
        self._number, self._level = self._feed.number_after(self._places), False
        if self._number is not None:
            return await self._step()
        before = self.place
        page = await self._feed.page(self._places)
        found = [self._seen(item) for _, item in page.items]
        for partition, place in page.places.items():
            self._places[partition] = max(self._places[partition], place, key=event_sort_key)
        kept = [(place, item) for place, item in found if self.interest.takes(item.event)]
        if not found and not page.gap:
            return None
        return FeedBatch(kept, self.place, before if page.gap else "")

    def _passed(self, items: list[FeedItem]) -> FeedBatch:
        kept = []
        for item in items:
            event = item.event
            if self._level:
                self._places[event.partition] = event.id
                place = item.place
            else:
                known = self._places.get(event.partition)
                if known is None or event_sort_key(event.id) <= event_sort_key(known):
                    continue
                place, _ = self._seen(item)
                self._level = place == item.place
            if self.interest.takes(event):
                kept.append((place, item))
        return FeedBatch(kept, self.place)

    def _seen(self, item: FeedItem) -> tuple[str, FeedItem]:
        self._places[item.event.partition] = item.event.id
        return self.place, item


def _is_any_before(places: Positions, others: Positions) -> bool:
    """Whether one of the places is before that of the others in its partition."""
    return any(event_sort_key(place) < event_sort_key(others[partition]) for partition, place in places.items())


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


def format_positions(places: Mapping[int, str]) -> str:
    """The same as text."""
    return ",".join(places[partition] for partition in sorted(places))


def read_last_positions(store: NamespaceStore, partitions: Iterable[int]) -> Positions:
    """Where the events of these partitions end at the moment."""
    return {partition: PartitionEvents(store, partition).last_id() for partition in partitions}


def _read_page(store: NamespaceStore, whereabouts: RunLocator, places: Positions) -> _Page:
    """The next events of each partition, and up to where they are; of several partitions, in the order of their times
    as far as all of them are known."""
    page, bounds = _Page(), []
    for partition, after in places.items():
        events = PartitionEvents(store, partition)
        if events.missed(after):
            page.gap = True
        found = list(islice(events.replay(after), EVENTS_PER_PAGE))
        page.items += [(partition, FeedItem(event, "")) for event in whereabouts.located(partition, found)]
        if found:
            page.places[partition] = found[-1].id
        if len(found) == EVENTS_PER_PAGE:
            bounds.append(found[-1].at_ms)
    page.items.sort(key=lambda each: (each[1].event.at_ms, each[0], event_sort_key(each[1].event.id)))
    if bounds and len(places) > 1:
        page.items = [each for each in page.items if each[1].event.at_ms <= min(bounds)]
        page.places = {partition: item.event.id for partition, item in page.items}
    return page


def _locate_events(whereabouts: RunLocator, events: list[Event]) -> _Page:
    page = _Page()
    for partition in dict.fromkeys(event.partition for event in events):
        mine = [event for event in events if event.partition == partition]
        page.items += [(partition, FeedItem(event, "")) for event in whereabouts.located(partition, mine)]
    return page
