"""`agentq why`: where a run stands, in words."""

from __future__ import annotations

import typer

from agentq.cli.connect import connect_server
from agentq.cli.options import Json, RunOrNewest
from agentq.cli.render import bold, paint, print_json, print_sentence
from agentq.cli.run_references import find_runs_or_newest
from agentq.coordinator.explain.run import RunExplanation


def why(ctx: typer.Context, run: RunOrNewest = None, json: Json = False) -> None:
    """Say in words why a run is where it is: what it waits for, who has it, what would have to happen.

    \b
    Example: agentq why
    Example: agentq why RUN
    """
    server = connect_server(ctx)
    (run_id,) = find_runs_or_newest(server, run)
    found, sentences = RunExplanation(server.store, server.settings).of(run_id)
    if json:
        print_json({"id": found.id, "state": found.state.value, "because": sentences})
        return
    print(f"{bold(found.id)} is {paint(found.state.value)}.")
    for sentence in sentences:
        print_sentence(sentence)
