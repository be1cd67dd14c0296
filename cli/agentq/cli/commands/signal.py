"""`agentq signal`: sends a signal to a run."""

from __future__ import annotations

import getpass
import json as json_text
import socket
from typing import Annotated, Any

import typer

from agentq.cli.apply import apply_to_runs
from agentq.cli.connect import connect_backend
from agentq.cli.options import Json, RunId
from agentq.coordinator.bounds import SENDER_CHARACTERS
from agentq.coordinator.errors import Invalid
from agentq.coordinator.model.lifecycle import State


def signal(
    ctx: typer.Context,
    run: RunId,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the signal.")],
    data: Annotated[str | None, typer.Option(metavar="JSON", help="Data of the signal; null if not given.")] = None,
    json: Json = False,
) -> None:
    """Send a signal to a run. A run that waits for it continues; otherwise the signal is kept for the run.

    \b
    Example: agentq signal RUN deploy
    Example: agentq signal RUN deploy --data '{"version": "1.2"}'
    """
    told = None if data is None else parse_json_option(data, "--data")
    backend = connect_backend(ctx)

    def say(run_id: str) -> State:
        return backend.signal(run_id, name, told, by=sender_name())

    raise typer.Exit(apply_to_runs([backend.find(run)], say, json=json, add=pending_note).code)


def parse_json_option(text: str, option: str) -> Any:
    """An option that is JSON."""
    try:
        return json_text.loads(text)
    except ValueError as error:
        raise Invalid(f"{option} takes JSON, such as '{{\"a\": 1}}', and {text[:40]!r} is none: {error}.") from None


def sender_name() -> str:
    """The sender of the signal."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "somebody"
    return f"{user}@{socket.gethostname()}"[:SENDER_CHARACTERS]


def pending_note(state: State) -> str:
    """What there is to add for one that does not go on because of this."""
    return "" if state is State.PENDING else "keeps it until it waits for it"
