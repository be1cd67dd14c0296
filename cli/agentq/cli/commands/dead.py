"""`agentq dead`: runs that failed for good, which elsewhere are called dead letters."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import islice
from typing import Annotated

import typer

from agentq.cli.apply import apply_to_runs
from agentq.cli.commands.ls import read_runs
from agentq.cli.commands.show import print_run
from agentq.cli.confirm import DryRun, Yes, confirm
from agentq.cli.connect import connect_backend, print_note
from agentq.cli.options import TYPER_SETTINGS, Json, RunIds
from agentq.cli.parse.option_errors import parse_duration_option
from agentq.cli.parse.retry_policy import parse_failure_class
from agentq.cli.render import on_terminal, print_json, print_sentence, print_table
from agentq.cli.run_references import find_runs
from agentq.cli.show.rq_jobs import with_job_titles
from agentq.cli.show.run_summary import describe_spec
from agentq.coordinator.bounds import KEEP_MS_MIN, LIST_PER_CALL
from agentq.coordinator.clock import wall_ms
from agentq.coordinator.errors import Invalid, NotFound, WrongState
from agentq.coordinator.model.durations import format_duration, format_iso
from agentq.coordinator.model.lifecycle import State
from agentq.coordinator.public_json.runs import run_json
from agentq.coordinator.runs.queries import RunFilter
from agentq.coordinator.runs.run_record import RunRecord
from agentq.sdk.backend.runs import list_run_ids

Opt = typer.Option
SomeRuns = Annotated[
    list[str] | None, typer.Argument(metavar="RUN", help="Ids or their beginnings; or select runs by options.")
]
QueueFilter = Annotated[str | None, Opt(metavar="NAME", help="Only of this queue.")]
PlanFilter = Annotated[str | None, Opt(metavar="NAME", help="Only of this plan.")]
ClassFilter = Annotated[str | None, Opt("--class", metavar="CLASS", help="Only with this reason, such as timeout.")]
SinceFilter = Annotated[str | None, Opt(metavar="DURATION", help="Only runs that failed within this time, such as 1h.")]
OlderFilter = Annotated[str | None, Opt(metavar="DURATION", help="Only runs that failed longer ago than this.")]
AllRuns = Annotated[bool, Opt("--all", help="All that failed.")]

dead = typer.Typer(**TYPER_SETTINGS, no_args_is_help=True, epilog="Example: agentq dead ls")


@dead.callback()
def _dead() -> None:
    """List, show, retry and purge runs that failed for good."""


@dead.command("ls")
def ls(
    ctx: typer.Context,
    queue: QueueFilter = None,
    plan: PlanFilter = None,
    class_: ClassFilter = None,
    since: SinceFilter = None,
    older: OlderFilter = None,
    limit: Annotated[int, Opt(metavar="N", min=1, help="The most entries.")] = 20,
    cursor: Annotated[str | None, Opt(metavar="RUN", help="Continue after this one, the last of a page.")] = None,
    json: Json = False,
) -> None:
    """List failed runs, the last submitted first.

    \b
    Example: agentq dead ls --class timeout --since 1d
    """
    which = _build_filter(queue, plan, class_, since, older)
    backend = connect_backend(ctx)
    found = read_runs(backend, which, None if cursor is None else backend.find(cursor), limit)
    if json:
        for run in found:
            print_json(run_json(run))
        return
    runs = list(found)
    heads = ["run", "class", "tries", "queue", "failed", "what", "error"]
    spare = ("tries", "queue", "failed", "what")
    print_table(heads, [_run_row(run) for run in with_job_titles(backend, runs)], cut={"what", "error"}, spare=spare)
    if on_terminal() and len(runs) == limit:
        print_note(f"there may be more: --cursor {runs[-1].id}, or a larger --limit.")


@dead.command("show")
def show(ctx: typer.Context, run: RunIds, json: Json = False) -> None:
    """Show failed runs with each attempt, and why they are not tried again.

    \b
    Example: agentq dead show RUN
    """
    backend = connect_backend(ctx)
    for place, run_id in enumerate(find_runs(backend, run)):
        found = backend.get(run_id)
        if found.state is not State.FAILED:
            raise WrongState(f"The run {run_id} is {found.state}, and not dead; `agentq show` shows it.")
        because = backend.explain(run_id).because
        if json:
            print_json({**run_json(found), "because": because})
            continue
        if place:
            print()
        (titled,) = with_job_titles(backend, [found])
        print_run(titled)
        for sentence in because:
            print_sentence(f"  {sentence}")


@dead.command("retry")
def retry(
    ctx: typer.Context,
    run: SomeRuns = None,
    queue: QueueFilter = None,
    plan: PlanFilter = None,
    class_: ClassFilter = None,
    since: SinceFilter = None,
    older: OlderFilter = None,
    every: AllRuns = False,
    json: Json = False,
) -> None:
    """Requeue failed runs with fresh retry budgets. Their attempts so far stay on record.

    \b
    Example: agentq dead retry RUN
    Example: agentq dead retry --queue builds --class timeout --since 1h
    """
    which = _check_selection(run, _build_filter(queue, plan, class_, since, older), every)
    backend = connect_backend(ctx)
    ids = find_runs(backend, run) if run else list_run_ids(backend, which)
    told = apply_to_runs(ids, backend.requeue, json=json)
    print_note(f"{told.done} {'run begins' if told.done == 1 else 'runs begin'} again.")
    raise typer.Exit(told.code)


@dead.command("purge")
def purge(
    ctx: typer.Context,
    run: SomeRuns = None,
    queue: QueueFilter = None,
    plan: PlanFilter = None,
    class_: ClassFilter = None,
    since: SinceFilter = None,
    older: OlderFilter = None,
    every: AllRuns = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Delete failed runs before they expire, with their attempts and logs. This cannot be undone.

    Runs selected by options are counted first: a terminal asks for confirmation, a script needs --yes. Runs that
    failed in the last minute are kept: a repeated submit must still find them.

    \b
    Example: agentq dead purge --older 30d --yes
    Example: agentq dead purge --queue builds --dry-run
    """
    which = _check_selection(run, _build_filter(queue, plan, class_, since, older), every)
    backend = connect_backend(ctx)
    latest_ms = min(which.ended_until_ms or wall_ms(), wall_ms() - KEEP_MS_MIN)
    which = replace(which, ended_until_ms=latest_ms)
    ids: Iterable[str] = find_runs(backend, run or ())
    if not run:
        number = sum(1 for _ in list_run_ids(backend, which))
        if number and not dry_run:
            runs = "1 failed run" if number == 1 else f"{number} failed runs"
            confirm(f"{runs} would be forgotten, with {'its' if number == 1 else 'their'} logs", yes=yes)
        ids = list_run_ids(backend, which)
    if dry_run:
        number = len(run) if run else number
        print_json({"would_be_forgotten": number}) if json else print(f"{number} would be forgotten")
        return
    found = ((run_id, State.FAILED) for run_id in ids)
    forgotten = code = 0
    while chunk := list(islice(found, LIST_PER_CALL)):
        for refused in backend.forget(chunk):
            if refused is None or (isinstance(refused, NotFound) and not run):
                forgotten += 1
            else:
                print_note(str(refused))
                code = code or refused.exit_code
    if json:
        print_json({"forgotten": forgotten})
    else:
        print(f"{forgotten} forgotten")
    raise typer.Exit(code)


def _build_filter(
    queue: str | None, plan: str | None, class_: str | None, since: str | None, older: str | None
) -> RunFilter:
    now_ms = wall_ms()
    return RunFilter(
        states=(State.FAILED,),
        queue=queue,
        plan=plan,
        class_=None if class_ is None else parse_failure_class(class_, "--class"),
        ended_since_ms=None if since is None else now_ms - parse_duration_option(since, "--since"),
        ended_until_ms=None if older is None else now_ms - parse_duration_option(older, "--older"),
    )


def _check_selection(run: list[str] | None, which: RunFilter, every: bool) -> RunFilter:
    """Whom a verb is meant for: those named, those that the options describe, or all."""
    described = which != RunFilter(states=which.states)
    if run and (described or every):
        raise Invalid("Name runs or select them by options, not both.")
    if not run and not described and not every:
        raise Invalid("Name the runs, say by options such as --queue or --since which, or give --all.")
    return which


def _run_row(run: RunRecord) -> list[str]:
    ended_ms = run.finished_at_ms or 0
    failed = f"{format_duration(wall_ms() - ended_ms)} ago" if on_terminal() else format_iso(ended_ms)
    outcome = run.outcome
    class_ = outcome.class_.value if outcome else ""
    return [
        run.id,
        class_,
        str(run.attempt),
        run.spec.queue,
        failed,
        describe_spec(run.spec),
        (outcome and outcome.error) or "",
    ]
