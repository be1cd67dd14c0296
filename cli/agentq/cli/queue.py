"""`agentq queue`: what waits where."""

from __future__ import annotations

import typer

from agentq.cli.options import STYLE, Json
from agentq.cli.render import on_terminal, print_json, print_table
from agentq.cli.server import note, reach
from agentq.coordinator.lifecycle import State

queue = typer.Typer(**STYLE, no_args_is_help=True, help="Look at queues.")


@queue.callback()
def _queue() -> None:
    """Look at queues."""


@queue.command("ls")
def ls(ctx: typer.Context, json: Json = False) -> None:
    """List queues, with their runs by state.

    \b
    Example: agentq queue ls
    """
    counts = reach(ctx).records.count()
    if json:
        for name, numbers in sorted(counts.items()):
            print_json({"queue": name, **{state.value: numbers.get(state, 0) for state in State}})
        return
    if not on_terminal():
        print_table(
            [], [[name, state, str(numbers[state])] for name, numbers in sorted(counts.items()) for state in numbers]
        )
        return
    used = [state for state in State if any(state in numbers for numbers in counts.values())]
    print_table(
        ["queue", *used], [[name, *(str(of.get(state, "")) for state in used)] for name, of in sorted(counts.items())]
    )
    if not counts:
        note("there are no queues yet; the first `agentq submit` makes one.")
