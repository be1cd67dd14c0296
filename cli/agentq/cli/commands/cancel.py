"""`agentq cancel`: end runs that have not ended."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from agentq.cli.apply import apply_to_runs
from agentq.cli.commands.ls import parse_states, read_runs
from agentq.cli.confirm import DryRun, Yes, confirm
from agentq.cli.connect import connect_backend, print_note
from agentq.cli.options import Json
from agentq.cli.parse.key_values import parse_key_values
from agentq.cli.render import print_json, print_table
from agentq.cli.run_references import find_runs
from agentq.coordinator.errors import Invalid
from agentq.coordinator.id_lookup import find_plan
from agentq.coordinator.model.lifecycle import LIVE_STATES
from agentq.coordinator.runs.queries import RunFilter

if TYPE_CHECKING:
    from agentq.sdk.backend import Backend

Opt = typer.Option
RunNames = list[str] | None


def cancel(
    ctx: typer.Context,
    run: Annotated[
        RunNames,
        typer.Argument(metavar="RUN", help="Ids, their beginnings or ends, or PLAN/TASK; or select runs by options."),
    ] = None,
    queue: Annotated[str | None, Opt(metavar="NAME", help="All live runs of this queue.")] = None,
    plan: Annotated[str | None, Opt(metavar="PLAN", help="All live runs of this plan.")] = None,
    label: Annotated[RunNames, Opt(metavar="K=V", help="All live runs with this label. Repeat: with all.")] = None,
    state: Annotated[RunNames, Opt(metavar="STATE", help="All runs in this state, or live. Repeat.")] = None,
    reason: Annotated[str, Opt(metavar="TEXT", help="Reason to record with the run.")] = "cancelled on request",
    dry_run: DryRun = False,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Cancel runs. One that has a worker ends when its worker has stopped it; `agentq wait` waits for that.

    The live children of a run are cancelled with it, unless it was submitted with `--children leave`. Runs that are
    not named are counted first, on a terminal it asks, elsewhere it needs --yes; so does the newest live run, which is
    meant if nothing is said.

    \b
    Example: agentq cancel RUN
    Example: agentq cancel RUN --reason "not needed any more"
    Example: agentq cancel --queue builds --state pending --dry-run
    Example: agentq cancel --label team=a --yes
    """
    backend = connect_backend(ctx)
    if queue or plan or label or state:
        if run:
            raise Invalid("Name runs or select them by options, not both.")
        ids = _select_runs(backend, queue, plan, label or [], state or ["live"])
        what = f"{len(ids)} run{'' if len(ids) == 1 else 's'}"
        if not ids:
            print_note("There are no such runs.")
    else:
        ids = find_runs(backend, run) if run else [backend.find(None, live=True)]
        what = "" if run else f"{ids[0]}, the newest live run,"
    if dry_run:
        _show_selected(ids, json=json)
        return
    if ids and what:
        confirm(f"{what} would be cancelled", yes=yes)
    raise typer.Exit(apply_to_runs(ids, lambda run_id: backend.cancel(run_id, reason), json=json).code)


def _select_runs(
    backend: Backend, queue: str | None, plan: str | None, label: list[str], state: list[str]
) -> list[str]:
    """The ids of the runs that are meant."""
    states, labels = parse_states(state), parse_key_values(label, "--label")
    if ended := [each for each in states if each not in LIVE_STATES]:
        raise Invalid(f"--state {ended[0]}: such a run has ended, and cannot be cancelled.")
    if plan is not None:
        plan = find_plan(backend.plans, plan).id
    which = RunFilter(states=states, queue=queue, plan=plan)
    return [run.id for run in read_runs(backend, which, None, sys.maxsize, labels)]


def _show_selected(ids: list[str], *, json: bool) -> None:
    if json:
        for run_id in ids:
            print_json({"id": run_id})
    else:
        print_table(["would be cancelled"], [[run_id] for run_id in ids])
