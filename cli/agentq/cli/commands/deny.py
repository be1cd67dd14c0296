"""`agentq deny`: denies requests of runs."""

from __future__ import annotations

from typing import Annotated

import typer

from agentq.cli.apply import apply_to_runs
from agentq.cli.commands.signal import pending_note, sender_name
from agentq.cli.connect import connect_backend
from agentq.cli.options import Json, RunIds
from agentq.cli.run_references import find_runs
from agentq.coordinator.model.lifecycle import State


def deny(
    ctx: typer.Context,
    run: RunIds,
    comment: Annotated[str, typer.Option(metavar="TEXT", help="Reason to pass to the run.")] = "",
    json: Json = False,
) -> None:
    """Deny the requests of runs. A run continues and decides what a denial means; `agentq cancel` ends it instead.

    \b
    Example: agentq deny RUN
    Example: agentq deny RUN --comment "not on a Friday"
    """
    backend = connect_backend(ctx)

    def say(run_id: str) -> State:
        return backend.deny(run_id, comment, by=sender_name())

    raise typer.Exit(apply_to_runs(find_runs(backend, run), say, json=json, add=pending_note).code)
