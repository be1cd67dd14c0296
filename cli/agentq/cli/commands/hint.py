"""`agentq hint`: passes a hint to the next attempt of an agent's run."""

from __future__ import annotations

from typing import Annotated

import typer

from agentq.cli.commands.signal import sender_name
from agentq.cli.connect import connect_backend, print_note
from agentq.cli.options import Json, RunId
from agentq.cli.parse.prompt import read_prompt
from agentq.cli.render import print_json, print_row
from agentq.coordinator.errors import Invalid, WrongState
from agentq.coordinator.model.lifecycle import TERMINAL_STATES, State


def hint(
    ctx: typer.Context,
    run: RunId,
    text: Annotated[list[str], typer.Argument(metavar="TEXT", help="The hint; - reads it from stdin.")],
    retry: Annotated[bool, typer.Option("--retry", help="Requeue the run if it has ended.")] = False,
    json: Json = False,
) -> None:
    """Pass a hint to the next attempt of an agent's run, after its prompt. The current attempt is not disturbed.

    \b
    Example: agentq hint RUN "The fixture is in tests/data."
    """
    said = read_prompt(text, None)
    backend = connect_backend(ctx)
    run_id = backend.find(run)
    found = backend.get(run_id)
    if found.spec.kind != "agent":
        raise Invalid(f"{run_id} is a {found.spec.kind}; only runs of agents take hints.")
    if found.state in TERMINAL_STATES:
        if not retry:
            raise WrongState(f"{run_id} is {found.state.value}; --retry requeues it with the hint.")
        backend.requeue(run_id)
    state = backend.signal(run_id, HINT_SIGNAL, said, by=sender_name())
    if state in (State.CLAIMED, State.RUNNING):
        print_note("an attempt is running; the next attempt gets the hint, if there is one.")
    if json:
        print_json({"id": run_id, "state": state.value})
    else:
        print_row(run_id, state.value)


HINT_SIGNAL = "hint"
"""The name of the signals that the worker adds to the prompt of an attempt."""
