"""`agentq deny`: a no to what runs ask for."""

from __future__ import annotations

from typing import Annotated

import typer

from agentq.cli.options import Json, RunIds
from agentq.cli.references import all_of
from agentq.cli.server import reach
from agentq.cli.signal import kept, sender
from agentq.cli.verb import say_to_all
from agentq.coordinator.lifecycle import State


def deny(
    ctx: typer.Context,
    run: RunIds,
    comment: Annotated[str, typer.Option(metavar="TEXT", help="Why; the run is told.")] = "",
    json: Json = False,
) -> None:
    """Say no to what runs ask for. A run goes on with that, and decides what it means; `agentq cancel` ends one.

    \b
    Example: agentq deny RUN
    Example: agentq deny RUN --comment "not on a Friday"
    """
    server = reach(ctx)

    def say(run_id: str) -> State:
        return server.queue.deny(run_id, comment, by=sender())

    raise typer.Exit(say_to_all(all_of(server, run), say, json=json, add=kept).code)
