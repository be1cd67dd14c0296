"""`agentq retry`: requeues ended runs."""

from __future__ import annotations

import typer

from agentq.cli.apply import apply_to_runs
from agentq.cli.connect import connect_backend
from agentq.cli.options import Json, RunIds
from agentq.cli.run_references import find_runs


def retry(ctx: typer.Context, run: RunIds, json: Json = False) -> None:
    """Requeue ended runs with fresh retry budgets. Their attempts so far stay on record.

    \b
    Example: agentq retry RUN
    """
    backend = connect_backend(ctx)
    raise typer.Exit(apply_to_runs(find_runs(backend, run), backend.requeue, json=json).code)
