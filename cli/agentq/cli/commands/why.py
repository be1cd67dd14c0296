"""`agentq why`: explains the state of a run."""

from __future__ import annotations

import typer

from agentq.cli.connect import connect_backend
from agentq.cli.options import Json, RunOrNewest
from agentq.cli.render import bold, paint, print_json, print_sentence
from agentq.cli.run_references import find_runs_or_newest


def why(ctx: typer.Context, run: RunOrNewest = None, json: Json = False) -> None:
    """Explain why a run is in its state: what it waits for, which worker has it, and what has to happen next.

    \b
    Example: agentq why
    Example: agentq why RUN
    """
    backend = connect_backend(ctx)
    (run_id,) = find_runs_or_newest(backend, run)
    state, because = backend.explain(run_id)
    if json:
        print_json({"id": run_id, "state": state.value, "because": because})
        return
    print(f"{bold(run_id)} is {paint(state.value)}.")
    for sentence in because:
        print_sentence(sentence)
