"""`agentq events`: prints events in order."""

from __future__ import annotations

from typing import Annotated

import typer

from agentq.cli.connect import connect_backend
from agentq.cli.options import Json
from agentq.cli.render import on_terminal, print_json, print_table
from agentq.coordinator.clock import wall_ms
from agentq.coordinator.events.stream import Event
from agentq.coordinator.model.durations import format_iso, parse_duration_ms


def events(
    ctx: typer.Context,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Continue with new events as they happen.")] = False,
    run: Annotated[str | None, typer.Option(metavar="RUN", help="Only events of this run.")] = None,
    since: Annotated[str | None, typer.Option(metavar="DURATION", help="Only events newer than this.")] = None,
    limit: Annotated[int, typer.Option(metavar="N", min=0, help="At most this many past events.")] = 100,
    json: Json = False,
) -> None:
    """Print events in order: the newest past events, and with -f new ones as they happen.

    \b
    Example: agentq events --since 1h
    Example: agentq events --run RUN --json
    """
    since_ms = 0 if since is None else wall_ms() - parse_duration_ms(since)
    backend = connect_backend(ctx)
    run_id = None if run is None else backend.get(backend.find(run)).id
    recent = backend.recent_events(limit, since_ms=since_ms, run_id=run_id)
    for event in recent.events:
        _print_event(event, json)
    for event in backend.events(recent.position, follow=True) if follow else ():
        if run_id in (None, event.run):
            _print_event(Event.model_validate(event.model_dump(exclude={"place"})), json)


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
