"""`agentq wait`: waits until runs have ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from agentq.cli.connect import connect_backend, print_note
from agentq.cli.options import Json, RunsOrNewest
from agentq.cli.render import print_json, print_row
from agentq.cli.run_references import find_runs_or_newest
from agentq.cli.show.run_summary import describe_end
from agentq.coordinator.clock import monotonic_ms
from agentq.coordinator.model.durations import parse_duration_ms
from agentq.coordinator.model.lifecycle import State
from agentq.coordinator.public_json.runs import run_json
from agentq.coordinator.runs.run_record import RunRecord

if TYPE_CHECKING:
    from agentq.sdk.backend import Backend


def wait(
    ctx: typer.Context,
    run: RunsOrNewest = None,
    timeout: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Longest time to wait; then exit with code 124.")
    ] = None,
    json: Json = False,
) -> None:
    """Wait until runs have ended. The exit code is 0 if all completed, 1 if not.

    \b
    Example: agentq wait
    Example: agentq wait RUN
    Example: agentq wait RUN --timeout 10m --json
    """
    timeout_ms = None if timeout is None else parse_duration_ms(timeout)
    backend = connect_backend(ctx)
    raise typer.Exit(wait_for_runs(backend, find_runs_or_newest(backend, run), timeout_ms, json=json))


def wait_for_runs(
    backend: Backend, ids: list[str], timeout_ms: int | None = None, *, json: bool = False, submitted: bool = False
) -> int:
    """Print each run when its turn has come and it has ended; the exit code for all of them.

    Of runs that were just submitted stdout has the ids already, so that how they ended goes to stderr.
    """
    deadline = None if timeout_ms is None else monotonic_ms() + timeout_ms
    code = 0
    for run_id in ids:
        run = backend.wait(run_id, None if deadline is None else max(0, deadline - monotonic_ms()))
        code = max(code, _print_end(run, json=json, submitted=submitted))
    return code


def _print_end(run: RunRecord, *, json: bool, submitted: bool) -> int:
    """Print how it ended; the exit code for it."""
    if json:
        print_json(run_json(run))
    elif submitted:
        print_note(f"{run.id} {', '.join(filter(None, (run.state.value, describe_end(run))))}.")
    else:
        print_row(run.id, run.state.value, describe_end(run))
    return exit_code(run)


def exit_code(run: RunRecord) -> int:
    return 0 if run.state is State.COMPLETED else 1
