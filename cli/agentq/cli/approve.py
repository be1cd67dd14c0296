"""`agentq approve`: a yes to what runs ask for."""

from __future__ import annotations

from typing import Annotated

import typer

from agentq.cli.options import Json, RunIds
from agentq.cli.references import all_of
from agentq.cli.server import reach
from agentq.cli.signal import kept, sender
from agentq.cli.verb import say_to_all
from agentq.coordinator.lifecycle import State


def approve(
    ctx: typer.Context,
    run: RunIds,
    comment: Annotated[str, typer.Option(metavar="TEXT", help="Why; the run is told.")] = "",
    json: Json = False,
) -> None:
    """Say yes to what runs ask for. One that does not ask yet finds it when it does.

    \b
    Example: agentq approve RUN
    Example: agentq approve RUN --comment "looks good"
    """
    server = reach(ctx)

    def say(run_id: str) -> State:
        return server.queue.approve(run_id, comment, by=sender())

    raise typer.Exit(say_to_all(all_of(server, run), say, json=json, add=kept).code)
