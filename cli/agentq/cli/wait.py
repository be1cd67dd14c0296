"""`agentq wait`: until runs have ended."""

from __future__ import annotations

from typing import Annotated

import typer

from agentq.cli.afar import Afar, afar
from agentq.cli.options import Json, RunsOrNewest
from agentq.cli.record import ending
from agentq.cli.references import chosen
from agentq.cli.render import print_json, print_row
from agentq.cli.server import Server, note, reach
from agentq.coordinator.clock import monotonic_ms
from agentq.coordinator.life import Run
from agentq.coordinator.lifecycle import TERMINAL, State
from agentq.coordinator.moments import duration_ms
from agentq.coordinator.outcomes import Outcomes
from agentq.coordinator.shapes import run_record


def wait(
    ctx: typer.Context,
    run: RunsOrNewest = None,
    timeout: Annotated[str | None, typer.Option(metavar="DURATION", help="Give up then, with exit code 124.")] = None,
    json: Json = False,
) -> None:
    """Wait until runs have ended. The exit code is 0 if all completed, 1 if not.

    \b
    Example: agentq wait
    Example: agentq wait RUN
    Example: agentq wait RUN --timeout 10m --json
    """
    timeout_ms = None if timeout is None else duration_ms(timeout)
    if there := afar(ctx):
        raise typer.Exit(wait_at(there, chosen(there, run), timeout_ms, json=json))
    server = reach(ctx)
    raise typer.Exit(wait_for(server, chosen(server, run), timeout_ms, json=json))


def wait_for(
    server: Server, ids: list[str], timeout_ms: int | None = None, *, json: bool = False, submitted: bool = False
) -> int:
    """Print each run when its turn has come and it has ended; the exit code for all of them.

    Of runs that were just submitted stdout has the ids already, so that how they ended goes to stderr.
    """
    deadline = None if timeout_ms is None else monotonic_ms() + timeout_ms
    outcomes, code = Outcomes(server.store), 0
    try:
        for run_id in ids:
            run = server.records.get(run_id)
            if run.state not in TERMINAL:
                run = outcomes.wait(run_id, None if deadline is None else max(0, deadline - monotonic_ms()))
            code = max(code, _told(run, json=json, submitted=submitted))
    finally:
        outcomes.close()
    return code


def wait_at(
    there: Afar, ids: list[str], timeout_ms: int | None = None, *, json: bool = False, submitted: bool = False
) -> int:
    """The same, where the server is not reached itself."""
    deadline = None if timeout_ms is None else monotonic_ms() + timeout_ms
    code = 0
    for run_id in ids:
        run = there.wait(run_id, None if deadline is None else max(0, deadline - monotonic_ms()))
        code = max(code, _told(run, json=json, submitted=submitted))
    return code


def _told(run: Run, *, json: bool, submitted: bool) -> int:
    """Print how it ended; the exit code for it."""
    if json:
        print_json(run_record(run))
    elif submitted:
        note(f"{run.id} {', '.join(filter(None, (run.state.value, ending(run))))}.")
    else:
        print_row(run.id, run.state.value, ending(run))
    return exit_code(run)


def exit_code(run: Run) -> int:
    return 0 if run.state is State.COMPLETED else 1
