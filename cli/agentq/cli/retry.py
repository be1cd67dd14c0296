"""`agentq retry`: let ended runs begin again."""

from __future__ import annotations

import typer

from agentq.cli.options import Json, RunIds
from agentq.cli.references import all_of
from agentq.cli.server import reach
from agentq.cli.verb import say_to_all


def retry(ctx: typer.Context, run: RunIds, json: Json = False) -> None:
    """Let ended runs begin again, with fresh budgets. Their attempts so far stay on record.

    \b
    Example: agentq retry RUN
    """
    server = reach(ctx)
    raise typer.Exit(say_to_all(all_of(server, run), server.queue.requeue, json=json).code)
