"""`agentq approve`: approves requests of runs."""

from __future__ import annotations

from typing import Annotated

import typer

from agentq.cli.apply import apply_to_runs
from agentq.cli.commands.signal import pending_note, sender_name
from agentq.cli.connect import connect_backend
from agentq.cli.options import Json, RunIds
from agentq.cli.run_references import find_runs
from agentq.coordinator.model.lifecycle import State


def approve(
    ctx: typer.Context,
    run: RunIds,
    comment: Annotated[str, typer.Option(metavar="TEXT", help="Reason to pass to the run.")] = "",
    json: Json = False,
) -> None:
    """Approve the requests of runs. A run that does not wait for an approval yet finds it when it asks for one.

    \b
    Example: agentq approve RUN
    Example: agentq approve RUN --comment "looks good"
    """
    backend = connect_backend(ctx)

    def say(run_id: str) -> State:
        return backend.approve(run_id, comment, by=sender_name())

    raise typer.Exit(apply_to_runs(find_runs(backend, run), say, json=json, add=pending_note).code)
