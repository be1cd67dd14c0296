"""What happens, as it happens: the words of a stream of events, of a run's events, and of its log while it grows."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Set
from typing import TYPE_CHECKING

from pydantic_core import to_json

from agentq.coordinator.clock import monotonic_ms
from agentq.coordinator.errors import NotFound, TryLater, Unreachable
from agentq.coordinator.events import BEGINNING
from agentq.coordinator.interest import Interest
from agentq.coordinator.lifecycle import TERMINAL, State
from agentq.coordinator.logs import Logs
from agentq.coordinator.server import sse
from agentq.coordinator.server.feed import A_STEP, Item, Places, joined
from agentq.coordinator.shapes import log_record

if TYPE_CHECKING:
    from agentq.coordinator.server.service import Service

ENTRIES_A_STEP = 200
OUTAGE_S = 1.0
KEEPALIVE_MS = round(sse.KEEPALIVE_S * 1000)
GAP = "gap"
END = "end"
BIRTH = "submitted"


async def events(service: Service, interest: Interest, places: Places) -> AsyncGenerator[str]:
    """Events from these places on, for ever."""
    async for words, _ in _told(service, interest, places):
        yield words


async def so_far(service: Service, interest: Interest, places: Places) -> AsyncGenerator[str]:
    """What has happened after these places already, and no more."""
    yield sse.opening(joined(places))
    async for place, item in past(service, interest, places):
        yield _words(place, item)
    yield sse.told("{}", name=END)


async def events_of(service: Service, run_id: str, places: Places, *, whole: bool) -> AsyncGenerator[str]:
    """The events of one run, until the one that ended it; `whole` if the places are those before its first."""
    interest = Interest(runs=(run_id,))
    ended = await _ended(service, run_id)
    if ended is not None:
        yield sse.opening(joined(places))
        async for place, item in past(service, interest, places):
            if whole and item.event.event != BIRTH:
                yield sse.told(json.dumps({"after": joined(places)}), name=GAP)
            whole = False
            yield _words(place, item)
        yield sse.told(json.dumps({"state": ended}), name=END)
        return
    async for words, state in _told(service, interest, places, whole=whole):
        yield words
        if state in TERMINAL and await _ended(service, run_id) is not None:
            yield sse.told(json.dumps({"state": state}), name=END)
            return


async def past(service: Service, interest: Interest, places: Places) -> AsyncGenerator[tuple[str, Item]]:
    """What has happened after these places already."""
    now = dict(places)
    while True:
        page = await service.feed.page(now)
        for partition, item in page.items:
            now[partition] = item.event.id
            if interest.takes(item.event):
                yield joined(now), item
        now |= page.places
        if not page.items:
            return


async def _told(
    service: Service, interest: Interest, places: Places, *, whole: bool = False
) -> AsyncGenerator[tuple[str, str]]:
    """The words, and the state that the last event of them led to. With `whole`, there is no gap before a birth."""
    with service.feed.reader(interest, places) as reader:
        shown, quiet_at_ms = reader.place, monotonic_ms() + KEEPALIVE_MS
        yield sse.opening(shown), ""
        while not service.tides.closing:
            try:
                batch = await reader.next(max(0, quiet_at_ms - monotonic_ms()) / 1000)
            except (Unreachable, TryLater):
                # What happens meanwhile is told when the store is back.
                yield sse.alive(), ""
                await asyncio.sleep(OUTAGE_S)
                continue
            if batch.gap and not (whole and batch.items and batch.items[0][1].event.event == BIRTH):
                yield sse.told(json.dumps({"after": batch.gap}), name=GAP), ""
            if batch.items:
                shown = batch.items[-1][0]
                for first in range(0, len(batch.items), A_STEP):
                    some = batch.items[first : first + A_STEP]
                    yield "".join(_words(place, item) for place, item in some), some[-1][1].event.state
            elif not batch.gap:
                if monotonic_ms() < quiet_at_ms:
                    continue
                moved, shown = batch.place if batch.place != shown else "", batch.place
                yield sse.alive(moved), ""
            quiet_at_ms = monotonic_ms() + KEEPALIVE_MS


def _words(place: str, item: Item) -> str:
    return sse.told(item.words, name=item.event.event, place=place)


async def log(service: Service, run_id: str, after: str, streams: Set[str] = frozenset()) -> AsyncGenerator[str]:
    """What a run wrote after a place, and what it writes from now on, until it has ended; of some streams or of all."""
    yield sse.opening("" if after == BEGINNING else after)
    logs, place, quiet_at_ms = Logs(service.store), after, monotonic_ms() + KEEPALIVE_MS
    with service.tides.of_run(run_id) as watch:
        while True:
            try:
                # Whether it is over is read first: what is read then is all that there will be.
                over = await service.ask(logs.is_over, run_id)
                entries = await service.ask(logs.some, run_id, place, ENTRIES_A_STEP)
            except (Unreachable, TryLater):
                yield sse.alive()
                await asyncio.sleep(OUTAGE_S)
                continue
            for entry in entries:
                place = entry.id
                if not streams or entry.stream in streams:
                    quiet_at_ms = monotonic_ms() + KEEPALIVE_MS
                    yield sse.told(to_json(log_record(entry)).decode(), name=entry.stream, place=place)
            if service.tides.closing:
                return
            if len(entries) >= ENTRIES_A_STEP:
                continue
            if over:
                yield sse.told(json.dumps({"state": await _ended(service, run_id)}), name=END)
                return
            if monotonic_ms() >= quiet_at_ms:
                quiet_at_ms = monotonic_ms() + KEEPALIVE_MS
                yield sse.alive(place if place != BEGINNING else "")
            bell = service.currents.bell(run_id, place)
            try:
                await watch.next(max(0, quiet_at_ms - monotonic_ms()) / 1000, bell)
            finally:
                bell.cancel()


async def _ended(service: Service, run_id: str) -> State | None:
    """The state that a run has ended in."""
    try:
        run = await service.ask(service.records.get, run_id)
    except NotFound:
        # It was there before: its time is over.
        return State.CANCELLED
    return run.state if run.state in TERMINAL else None
