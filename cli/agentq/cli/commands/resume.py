"""`agentq resume`: continues an interrupted plan."""

from __future__ import annotations

import socket
from typing import Annotated

import typer

from agentq.cli.commands.run import PLANS_SEARCHED, WORKERS_DEFAULT, Workers, find_unfinished_plan
from agentq.cli.connect import print_note, read_settings
from agentq.cli.options import Json
from agentq.cli.plans.plan_host import connect_plan_host
from agentq.coordinator.errors import NotFound, Refused
from agentq.coordinator.id_lookup import find_plan
from agentq.sdk.backend.plans import PlanVerbs

PLANS_NAMED = 5
"""Other plans that have not ended, of those that are told."""


def resume(
    ctx: typer.Context,
    plan: Annotated[
        str | None,
        typer.Argument(metavar="[PLAN]", help="Its id or the beginning of it; the newest live plan if not given."),
    ] = None,
    workers: Workers = None,
    retry: Annotated[bool, typer.Option("--retry", help="Requeue the failed tasks.")] = False,
    json: Json = False,
) -> None:
    """Continue a plan that was interrupted by Ctrl-C or a crash. Completed tasks are not repeated.

    With --workers 0 it only watches, as it does while another process on this machine works on the plan.

    \b
    Example: agentq resume PLAN
    Example: agentq resume PLAN --retry
    """
    raise typer.Exit(resume_plan(ctx, plan, workers, retry=retry, json=json))


def resume_plan(ctx: typer.Context, plan: str | None, workers: int | None, *, retry: bool = False, json: bool) -> int:
    """See above; the exit code."""
    from agentq.cli.plans.run_loop import PlanRunner

    host = connect_plan_host(ctx)
    plans = host.backend.plans
    record = find_plan(plans, plan) if plan else find_unfinished_plan(plans, "")
    if record is None:
        raise NotFound("There is no plan that has not ended; `agentq plan ls` shows all, `agentq run` begins one.")
    head = plans.header(record.id)
    slots = WORKERS_DEFAULT if workers is None else workers
    if slots and record.ended is None and head.is_bound and head.host != socket.gethostname():
        raise Refused(
            f"The plan {record.id} works in folders of {head.host}, and this is {socket.gethostname()}; resume it "
            "there, or look on with --workers 0."
        )
    if retry:
        record = plans.retry(record.id)
    if record.ended is None and not plan:
        print_note(f"going on with {record.id}.")
    carrying = PlanRunner(host, record.id, head, read_settings(ctx))
    code = carrying.carry_out(slots, json=json)
    if not plan:
        _note_other_plans(plans, record.id)
    return code


def _note_other_plans(plans: PlanVerbs, plan: str) -> None:
    """Note other plans that have not ended, as after a crash."""
    others = [other.id for other in plans.ls(limit=PLANS_SEARCHED)[0] if other.ended is None and other.id != plan]
    if not others:
        return
    named = " and ".join(
        [", ".join(others[:PLANS_NAMED]), *([f"{len(others) - PLANS_NAMED} more"] if others[PLANS_NAMED:] else [])]
    )
    have = "has" if len(others) == 1 else "have"
    print_note(f"{named} {have} not ended either; `agentq resume {others[0]}` goes on with it.")
