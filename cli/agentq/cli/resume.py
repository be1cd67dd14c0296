"""`agentq resume`: go on with a plan that was interrupted, however that happened."""

from __future__ import annotations

import socket
from typing import Annotated

import typer

from agentq.cli.options import Json
from agentq.cli.planned import find, plans_of
from agentq.cli.run import SOUGHT, WORKERS, Workers, unfinished
from agentq.cli.server import Server, note, reach, settings_of
from agentq.coordinator.errors import NotFound, Refused

NAMED = 5
"""Other plans that have not ended, of those that are told."""


def resume(
    ctx: typer.Context,
    plan: Annotated[
        str | None, typer.Argument(metavar="[PLAN]", help="Its id, or a beginning; the newest that has not ended.")
    ] = None,
    workers: Workers = None,
    retry: Annotated[bool, typer.Option("--retry", help="Let the tasks that failed begin again.")] = False,
    json: Json = False,
) -> None:
    """Go on with a plan that was interrupted, by Ctrl-C or by a crash of anything. What is done is not redone.

    With --workers 0 it only looks on; so it does while somebody on this machine works on the plan already.

    \b
    Example: agentq resume PLAN
    Example: agentq resume PLAN --retry
    """
    raise typer.Exit(go_on(ctx, plan, workers, retry=retry, json=json))


def go_on(ctx: typer.Context, plan: str | None, workers: int | None, *, retry: bool = False, json: bool) -> int:
    """See above; the exit code."""
    from agentq.cli.carrying import Carrying
    from agentq.planning.submitting import bound, head_in

    server = reach(ctx, start=True)
    record = find(server, plan) if plan else unfinished(server, "")
    if record is None:
        raise NotFound("There is no plan that has not ended; `agentq plan ls` shows all, `agentq run` begins one.")
    head = head_in(plans_of(server), record.id)
    slots = WORKERS if workers is None else workers
    if slots and record.ended is None and head.is_bound and head.host != socket.gethostname():
        raise Refused(
            f"The plan {record.id} works in folders of {head.host}, and this is {socket.gethostname()}; resume it "
            "there, or look on with --workers 0."
        )
    if retry:
        bound(plans_of(server), record.id, head)
        record = plans_of(server).retry(record.id)
    if record.ended is None and not plan:
        note(f"going on with {record.id}.")
    carrying = Carrying(server, record.id, head, settings_of(ctx))
    code = carrying.carry_out(slots, json=json)
    if not plan:
        _tell_of_others(server, record.id)
    return code


def _tell_of_others(server: Server, plan: str) -> None:
    """After a crash there may be several plans with which nobody goes on."""
    others = [other.id for other in plans_of(server).ls(limit=SOUGHT)[0] if other.ended is None and other.id != plan]
    if not others:
        return
    named = " and ".join([", ".join(others[:NAMED]), *([f"{len(others) - NAMED} more"] if others[NAMED:] else [])])
    have = "has" if len(others) == 1 else "have"
    note(f"{named} {have} not ended either; `agentq resume {others[0]}` goes on with it.")
