"""`agentq cancel`: end runs that have not ended."""

from __future__ import annotations

from typing import Annotated

import typer

from agentq.cli.afar import afar
from agentq.cli.options import Json, RunIds
from agentq.cli.server import reach
from agentq.cli.verb import say_to_all


def cancel(
    ctx: typer.Context,
    run: RunIds,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why; it is kept with the run.")] = "cancelled on request",
    json: Json = False,
) -> None:
    """Cancel runs. One that has a worker ends when its worker has stopped it; `agentq wait` waits for that.

    The live children of a run are cancelled with it, unless it was submitted with `--children leave`.

    \b
    Example: agentq cancel RUN
    Example: agentq cancel RUN --reason "not needed any more"
    """
    if there := afar(ctx):
        raise typer.Exit(say_to_all(run, lambda run_id: there.cancel(run_id, reason), json=json).code)
    server = reach(ctx)
    raise typer.Exit(say_to_all(server.find(run), lambda run_id: server.queue.cancel(run_id, reason), json=json).code)
