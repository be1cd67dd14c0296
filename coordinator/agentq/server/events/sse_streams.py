"""Server-sent events of all runs, of one run, and of a log while it grows."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Set
from typing import TYPE_CHECKING

from pydantic_core import to_json

from agentq.coordinator.clock import monotonic_ms
from agentq.coordinator.errors import NotFound, TryLater, Unreachable
from agentq.coordinator.events.event_filter import EventFilter
from agentq.coordinator.events.stream import STREAM_START
from agentq.coordinator.model.lifecycle import TERMINAL_STATES, State
from agentq.coordinator.public_json.logs import log_json
from agentq.coordinator.runs.logs import Logs
from agentq.server.events.feed import EVENTS_PER_STEP, FeedItem, Positions, format_positions
from agentq.server.http import sse

if TYPE_CHECKING:
    from agentq.server.service import ServerService

LOG_ENTRIES_PER_STEP = 200
OUTAGE_PAUSE_S = 1.0
KEEPALIVE_MS = round(sse.KEEPALIVE_S * 1000)
GAP_EVENT = "gap"
END_EVENT = "end"
FIRST_EVENT = "submitted"


async def stream_events(service: ServerService, event_filter: EventFilter, positions: Positions) -> AsyncGenerator[str]:
    """Events from these positions on, without end."""
    async for text, _ in _follow_feed(service, event_filter, positions):
        yield text


async def stream_past_events(
    service: ServerService, event_filter: EventFilter, positions: Positions
) -> AsyncGenerator[str]:
    """The events after these positions up to now."""
    yield sse.format_opening(format_positions(positions))
    async for position, item in read_past_events(service, event_filter, positions):
        yield _format_item(position, item)
    yield sse.format_event("{}", name=END_EVENT)


async def stream_run_events(
    service: ServerService, run_id: str, positions: Positions, *, from_start: bool
) -> AsyncGenerator[str]:
    """The events of one run until its end; `from_start` if the positions are before its first event."""
    event_filter = EventFilter(runs=(run_id,))
    ended = await _read_end_state(service, run_id)
    if ended is not None:
        yield sse.format_opening(format_positions(positions))
        async for position, item in read_past_events(service, event_filter, positions):
            if from_start and item.event.event != FIRST_EVENT:
                yield sse.format_event(json.dumps({"after": format_positions(positions)}), name=GAP_EVENT)
            from_start = False
            yield _format_item(position, item)
        yield sse.format_event(json.dumps({"state": ended}), name=END_EVENT)
        return
    async for text, state in _follow_feed(service, event_filter, positions, from_start=from_start):
        yield text
        if state in TERMINAL_STATES and await _read_end_state(service, run_id) is not None:
            yield sse.format_event(json.dumps({"state": state}), name=END_EVENT)
            return


async def read_past_events(
    service: ServerService, event_filter: EventFilter, positions: Positions
) -> AsyncGenerator[tuple[str, FeedItem]]:
    """The events after these positions up to now."""
    now = dict(positions)
    while True:
        page = await service.feed.page(now)
        for partition, item in page.items:
            now[partition] = item.event.id
            if event_filter.takes(item.event):
                yield format_positions(now), item
        now |= page.positions
        if not page.items:
            return


async def _follow_feed(
    service: ServerService, event_filter: EventFilter, positions: Positions, *, from_start: bool = False
) -> AsyncGenerator[tuple[str, str]]:
    """The formatted events, each with the state of the last one. With `from_start`, no gap is shown before the run's
    first event."""
    with service.feed.reader(event_filter, positions) as reader:
        shown, quiet_at_ms = reader.position, monotonic_ms() + KEEPALIVE_MS
        yield sse.format_opening(shown), ""
        while not service.event_hub.closing:
            try:
                batch = await reader.next(max(0, quiet_at_ms - monotonic_ms()) / 1000)
            except (Unreachable, TryLater):
                # Events during the outage are sent when the store is back.
                yield sse.format_keepalive(), ""
                await asyncio.sleep(OUTAGE_PAUSE_S)
                continue
            if batch.gap and not (from_start and batch.items and batch.items[0][1].event.event == FIRST_EVENT):
                yield sse.format_event(json.dumps({"after": batch.gap}), name=GAP_EVENT), ""
            if batch.items:
                shown = batch.items[-1][0]
                for first in range(0, len(batch.items), EVENTS_PER_STEP):
                    some = batch.items[first : first + EVENTS_PER_STEP]
                    yield "".join(_format_item(position, item) for position, item in some), some[-1][1].event.state
            elif not batch.gap:
                if monotonic_ms() < quiet_at_ms:
                    continue
                moved, shown = batch.position if batch.position != shown else "", batch.position
                yield sse.format_keepalive(moved), ""
            quiet_at_ms = monotonic_ms() + KEEPALIVE_MS


def _format_item(position: str, item: FeedItem) -> str:
    return sse.format_event(item.json_text, name=item.event.event, event_id=position)


async def stream_log(
    service: ServerService, run_id: str, after: str, streams: Set[str] = frozenset()
) -> AsyncGenerator[str]:
    """The entries of a log after a position, until the run has ended; of some streams or of all."""
    yield sse.format_opening("" if after == STREAM_START else after)
    logs, position, quiet_at_ms = Logs(service.store), after, monotonic_ms() + KEEPALIVE_MS
    with service.event_hub.watch_runs(run_id) as watch:
        while True:
            try:
                # Read the end first: then the entries read afterwards are complete.
                is_over = await service.call_in_thread(logs.is_over, run_id)
                entries = await service.call_in_thread(logs.some, run_id, position, LOG_ENTRIES_PER_STEP)
            except (Unreachable, TryLater):
                yield sse.format_keepalive()
                await asyncio.sleep(OUTAGE_PAUSE_S)
                continue
            for entry in entries:
                position = entry.id
                if not streams or entry.stream in streams:
                    quiet_at_ms = monotonic_ms() + KEEPALIVE_MS
                    yield sse.format_event(to_json(log_json(entry)).decode(), name=entry.stream, event_id=position)
            if service.event_hub.closing:
                return
            if len(entries) >= LOG_ENTRIES_PER_STEP:
                continue
            if is_over:
                yield sse.format_event(json.dumps({"state": await _read_end_state(service, run_id)}), name=END_EVENT)
                return
            if monotonic_ms() >= quiet_at_ms:
                quiet_at_ms = monotonic_ms() + KEEPALIVE_MS
                yield sse.format_keepalive(position if position != STREAM_START else "")
            log_grown = service.log_hub.watch(run_id, position)
            try:
                await watch.next(max(0, quiet_at_ms - monotonic_ms()) / 1000, log_grown)
            finally:
                log_grown.cancel()


async def _read_end_state(service: ServerService, run_id: str) -> State | None:
    """The state of an ended run; None if it has not ended."""
    try:
        run = await service.call_in_thread(service.run_queries.get, run_id)
    except NotFound:
        # It existed before: its retention time is over.
        return State.CANCELLED
    return run.state if run.state in TERMINAL_STATES else None
