"""`agentq cancel`: end runs that have not ended."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Annotated

import typer

from agentq.cli.afar import Coordinator, afar
from agentq.cli.confirm import DryRun, Yes, confirm
from agentq.cli.door import Door
from agentq.cli.ls import states_of, whole_runs
from agentq.cli.options import Json
from agentq.cli.pairs import pairs_of
from agentq.cli.references import all_of
from agentq.cli.render import print_json, print_table
from agentq.cli.server import Server, note, reach
from agentq.cli.verb import say_to_all
from agentq.coordinator.errors import Invalid
from agentq.coordinator.lifecycle import LIVE
from agentq.coordinator.records import Filter

Opt = typer.Option
Names = list[str] | None


def cancel(
    ctx: typer.Context,
    run: Annotated[
        Names,
        typer.Argument(metavar="RUN", help="Ids, their beginnings or ends, or PLAN/TASK; or say by options which."),
    ] = None,
    queue: Annotated[str | None, Opt(metavar="NAME", help="All live runs of this queue.")] = None,
    plan: Annotated[str | None, Opt(metavar="PLAN", help="All live runs of this plan.")] = None,
    label: Annotated[Names, Opt(metavar="K=V", help="All live runs with this label. Repeat: with all.")] = None,
    state: Annotated[Names, Opt(metavar="STATE", help="All runs in this state, or live. Repeat.")] = None,
    reason: Annotated[str, Opt(metavar="TEXT", help="Why; it is kept with the run.")] = "cancelled on request",
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
    place = afar(ctx) or reach(ctx)
    if queue or plan or label or state:
        if run:
            raise Invalid("Name the runs, or say by options which; not both.")
        if isinstance(place, Door):
            raise Invalid("Within an agent's run, runs are not selected by options; name the runs instead.")
        ids = _selected(place, queue, plan, label or [], state or ["live"])
        what = f"{len(ids)} run{'' if len(ids) == 1 else 's'}"
        if not ids:
            note("There are no such runs.")
    else:
        ids = all_of(place, run) if run else [place.find(None, live=True)]
        what = "" if run else f"{ids[0]}, the newest live run,"
    if dry_run:
        _show(ids, json=json)
        return
    if ids and what:
        confirm(f"{what} would be cancelled", yes=yes)
    verb = place.queue.cancel if isinstance(place, Server) else place.cancel
    raise typer.Exit(say_to_all(ids, lambda run_id: verb(run_id, reason), json=json).code)


def _selected(
    place: Server | Coordinator, queue: str | None, plan: str | None, label: list[str], state: list[str]
) -> list[str]:
    """The ids of the runs that are meant. A coordinator knows a plan by its whole id."""
    states, labels = states_of(state), pairs_of(label, "--label")
    if ended := [each for each in states if each not in LIVE]:
        raise Invalid(f"--state {ended[0]}: such a run has ended, and cannot be cancelled.")
    which = Filter(states=states, queue=queue, plan=plan)
    if not isinstance(place, Server):
        return list(place.matching(which, labels))
    if plan is not None:
        which = replace(which, plan=place.references.plan(plan).id)
    return [run.id for run in whole_runs(place, which, None, sys.maxsize, labels)]


def _show(ids: list[str], *, json: bool) -> None:
    if json:
        for run_id in ids:
            print_json({"id": run_id})
    else:
        print_table(["would be cancelled"], [[run_id] for run_id in ids])
