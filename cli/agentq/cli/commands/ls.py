"""`agentq ls`: runs, newest first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated

import typer

from agentq.cli.connect import connect_backend, print_note
from agentq.cli.options import Json
from agentq.cli.parse.key_values import parse_key_values
from agentq.cli.render import on_terminal, print_json, print_table
from agentq.cli.show.rq_jobs import with_job_titles
from agentq.cli.show.run_summary import describe_end, describe_spec
from agentq.coordinator.bounds import LIST_PER_CALL
from agentq.coordinator.clock import wall_ms
from agentq.coordinator.errors import AgentqError, Invalid, NotFound
from agentq.coordinator.model.durations import format_duration, format_iso, parse_duration_ms
from agentq.coordinator.model.lifecycle import LIVE_STATES, TERMINAL_STATES, State
from agentq.coordinator.public_json.runs import run_json
from agentq.coordinator.runs.queries import RunFilter
from agentq.coordinator.runs.run_record import RunRecord

if TYPE_CHECKING:
    from agentq.sdk.backend import Backend

STATE_GROUPS = {"live": LIVE_STATES, "ended": TERMINAL_STATES}


def ls(
    ctx: typer.Context,
    state: Annotated[
        list[str] | None, typer.Option(metavar="STATE", help="A state, or live, or ended. Repeatable.")
    ] = None,
    queue: Annotated[str | None, typer.Option(metavar="NAME", help="Only of this queue.")] = None,
    plan: Annotated[str | None, typer.Option(metavar="NAME", help="Only of this plan.")] = None,
    session: Annotated[str | None, typer.Option(metavar="NAME", help="Only of this session.")] = None,
    label: Annotated[
        list[str] | None, typer.Option(metavar="K=V", help="Only with this label. Repeat: with all.")
    ] = None,
    made_by: Annotated[str, typer.Option(metavar="TOKEN", help="Only runs made by the token of this id.")] = "",
    since: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Only runs newer than this, such as 2h.")
    ] = None,
    limit: Annotated[int, typer.Option(metavar="N", min=1, help="The most entries.")] = 20,
    cursor: Annotated[
        str | None, typer.Option(metavar="RUN", help="Continue after this one, the last of a page.")
    ] = None,
    json: Json = False,
) -> None:
    """List runs, newest first.

    \b
    Example: agentq ls
    Example: agentq ls --state failed --since 1d
    Example: agentq ls --state waiting
    Example: agentq ls --state live --queue default --json
    """
    which = RunFilter(
        states=parse_states(state or []),
        queue=queue,
        plan=plan,
        session=session,
        since_ms=None if since is None else wall_ms() - parse_duration_ms(since),
        made_by=made_by,
    )
    labels = parse_key_values(label or [], "--label")
    backend = connect_backend(ctx)
    below = None if cursor is None else backend.find(cursor)
    runs = read_runs(backend, which, below, limit, labels)
    if json:
        for run in runs:
            print_json(run_json(run))
        return
    found = with_job_titles(backend, list(runs))
    print_table(*_runs_table(found), spare=("worker", "queue", "age", "end"))
    if on_terminal():
        _note_more(found, limit)


def read_runs(
    backend: Backend,
    which: RunFilter,
    below: str | None,
    limit: int,
    labels: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[RunRecord]:
    """Whole runs, page by page, until there are enough or no more. One that is forgotten meanwhile is passed over, and
    so is one whose record is damaged, with a note."""
    left = limit
    while left:
        page = backend.page(which, limit=min(LIST_PER_CALL, left), cursor=below)
        for run in backend.read([entry.id for entry in page.runs]):
            if isinstance(run, NotFound):
                continue
            if isinstance(run, AgentqError):
                print_note(str(run))
            elif labels.items() <= run.spec.labels.items():
                left -= 1
                yield run
        below = page.cursor
        if below is None:
            return


def _runs_table(runs: list[RunRecord]) -> tuple[list[str], list[list[str]]]:
    now_ms = wall_ms()
    rows = []
    for run in runs:
        made = format_duration(now_ms - run.submitted_at_ms) if on_terminal() else format_iso(run.submitted_at_ms)
        end = f"for {run.reason}" if run.state is State.WAITING else describe_end(run)
        rows.append([run.id, run.state.value, end, run.spec.queue, made, run.worker, describe_spec(run.spec)])
    return ["run", "state", "end", "queue", "age", "worker", "what"], rows


def _note_more(runs: list[RunRecord], limit: int) -> None:
    """What the table does not say."""
    if not runs:
        print_note("there are no such runs.")
    elif len(runs) == limit:
        print_note(f"there may be more: --cursor {runs[-1].id}, or a larger --limit.")


def parse_states(names: list[str]) -> tuple[State, ...]:
    wanted: dict[State, None] = {}
    for name in names or ["live", "ended"]:
        if name not in STATE_GROUPS and name not in list(State):
            raise Invalid(f"{name[:40]!r} is not a state; there are {', '.join(State)}, live and ended.")
        wanted |= dict.fromkeys(STATE_GROUPS.get(name) or [State(name)])
    return tuple(wanted)
