"""`agentq why`: where a run stands, in words."""

from __future__ import annotations

import typer

from agentq.cli.options import Json, RunOrNewest
from agentq.cli.references import chosen
from agentq.cli.render import bold, paint, print_json, print_sentence
from agentq.cli.server import reach
from agentq.coordinator.explanation import Explanation


def why(ctx: typer.Context, run: RunOrNewest = None, json: Json = False) -> None:
    """Say in words why a run is where it is: what it waits for, who has it, what would have to happen.

    \b
    Example: agentq why
    Example: agentq why RUN
    """
    server = reach(ctx)
    (run_id,) = chosen(server, run)
    found, sentences = Explanation(server.store, server.settings).of(run_id)
    if json:
        print_json({"id": found.id, "state": found.state.value, "because": sentences})
        return
    print(f"{bold(found.id)} is {paint(found.state.value)}.")
    for sentence in sentences:
        print_sentence(sentence)
