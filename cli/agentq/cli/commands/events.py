"""`agentq events`: what happened, in order."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from queue import SimpleQueue
from threading import Thread
from typing import Annotated

import typer

from agentq.cli.connect import ServerConnection, connect_server
from agentq.cli.options import Json
from agentq.cli.render import on_terminal, print_json, print_table
from agentq.coordinator.clock import wall_ms
from agentq.coordinator.errors import AgentqError, TryLater, Unreachable
from agentq.coordinator.events.stream import STREAM_START, Event, PartitionEvents, event_sort_key
from agentq.coordinator.model.durations import format_iso, parse_duration_ms
from agentq.coordinator.model.ids import partition_of

FOLLOW_MS = 5000


def events(
    ctx: typer.Context,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what happens from now on.")] = False,
    run: Annotated[str | None, typer.Option(metavar="RUN", help="Only of this run.")] = None,
    since: Annotated[str | None, typer.Option(metavar="DURATION", help="Only what is as new as this.")] = None,
    limit: Annotated[
        int, typer.Option(metavar="N", min=0, help="At most so many of those that happened already.")
    ] = 100,
    json: Json = False,
) -> None:
    """Print what happened, in order: the newest that happened already, and with -f what happens from now on.

    \b
    Example: agentq events --since 1h
    Example: agentq events --run RUN --json
    """
    since_ms = 0 if since is None else wall_ms() - parse_duration_ms(since)
    server = connect_server(ctx)
    run_id = None if run is None else server.records.get(server.find(run)).id
    partitions = list(server.store.partitions()) if run_id is None else [partition_of(run_id)]
    places = {partition: PartitionEvents(server.store, partition).last_id() for partition in partitions}
    for event in _newest_events(server, places, run_id, since_ms, limit):
        _print_event(event, json)
    if follow:
        for event in _follow_events(server, places):
            if run_id in (None, event.run):
                _print_event(event, json)


def _newest_events(
    server: ServerConnection, places: dict[int, str], run_id: str | None, since_ms: int, limit: int
) -> list[Event]:
    """The newest up to those places, oldest first."""
    if not limit:
        return []
    found = (
        event
        for partition, place in places.items()
        for event in _read_until(PartitionEvents(server.store, partition).replay(_stream_id_before(since_ms)), place)
        if run_id in (None, event.run)
    )
    return sorted(heapq.nlargest(limit, found, key=_event_order), key=_event_order)


def _stream_id_before(since_ms: int) -> str:
    return f"{since_ms - 1}-0" if since_ms > 0 else STREAM_START


def _read_until(events: Iterator[Event], place: str) -> Iterator[Event]:
    for event in events:
        yield event
        if event.id == place:
            return


def _follow_events(server: ServerConnection, places: dict[int, str]) -> Iterator[Event]:
    """What happens after those places, in every partition, for ever; an outage is waited out."""
    heard: SimpleQueue[Event | AgentqError] = SimpleQueue()
    for partition, place in places.items():
        Thread(
            target=_follow_partition, args=(PartitionEvents(server.store, partition), place, heard), daemon=True
        ).start()
    while True:
        event = heard.get()
        if isinstance(event, AgentqError):
            raise event
        yield event


def _follow_partition(events: PartitionEvents, place: str, heard: SimpleQueue[Event | AgentqError]) -> None:
    while True:
        try:
            for event in events.follow(place, FOLLOW_MS):
                heard.put(event)
                place = event.id
        except (Unreachable, TryLater):
            # The events of the meantime are read when the server is back.
            events.close()
        except AgentqError as fault:
            heard.put(fault)
            return


def _event_order(event: Event) -> tuple[int, int, int, int]:
    at_ms, number, place = event_sort_key(event.id)
    return at_ms, event.partition, number, place


def _print_event(event: Event, json: bool) -> None:
    if json:
        print_json(event.public_json())
        return
    word = f"{event.state}: " if event.plan else ""
    row = [format_iso(event.at_ms), event.run or event.plan, event.event, event.worker, word + event.detail]
    if on_terminal():
        print("  ".join(filter(None, row)).rstrip())
    else:
        print_table([], [row])
