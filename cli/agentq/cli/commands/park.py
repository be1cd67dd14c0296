"""`agentq park`: within a run, in any language, asks the worker to park the run."""

from __future__ import annotations

import json as json_text
import os
from typing import Annotated, Any

import typer

from agentq.cli.commands.signal import parse_json_option
from agentq.cli.connect import print_note
from agentq.coordinator.errors import Invalid
from agentq.worker.run_api.park_request import PARK_FIELD, parse_park_request


def park(
    signal: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Wait for this signal. Repeatable.")] = None,
    approval: Annotated[bool, typer.Option("--approval", help="Wait for an approval or denial.")] = False,
    children: Annotated[str | None, typer.Option(metavar="all|any", help="Wait until its children have ended.")] = None,
    until: Annotated[
        str | None, typer.Option(metavar="TIME", help="Wait until this time, or for this long, such as 2h.")
    ] = None,
    state: Annotated[str | None, typer.Option(metavar="JSON", help="State to pass to the next attempt.")] = None,
) -> None:
    """Within a run: park it, to wait without a slot. The program must then end with exit code 0.

    The first event it waits for starts another attempt; the file that AGENTQ_RESUME names tells which event it was.
    Needs no server: it writes the request to the file named in AGENTQ_RESULT.

    \b
    Example: agentq park --approval --until 2d
    Example: agentq park --signal deploy --until 2h --state '{"step": 3}'
    Example: agentq park --children all
    """
    path = os.environ.get("AGENTQ_RESULT")
    if not path:
        raise Invalid("`agentq park` is said within a run, and this is none: AGENTQ_RESULT is not set.")
    request: dict[str, Any] = {"signal": signal, "approval": approval, "children": children, "until": until}
    request = {name: value for name, value in request.items() if value}
    if state is not None:
        request["state"] = parse_json_option(state, "--state")
    parse_park_request(request)
    try:
        with open(f"{path}.part", "w", encoding="utf-8") as file:
            json_text.dump({PARK_FIELD: request}, file)
        os.replace(f"{path}.part", path)
    except OSError as error:
        raise Invalid(f"The request cannot be written to {path}: {error.strerror}.") from error
    print_note("the run is parked when this program ends with exit code 0.")
