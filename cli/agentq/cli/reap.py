"""`agentq reap`: both passes of the reaper, and what schedules say, for cron."""

from __future__ import annotations

import typer

from agentq.cli.options import Json
from agentq.cli.render import print_json
from agentq.cli.server import reach
from agentq.coordinator.duties.reaper import Reaper
from agentq.coordinator.duties.scheduler import Scheduler

REQUEUED = 10


def reap(ctx: typer.Context, json: Json = False) -> None:
    """Requeue the runs of workers that are gone, and run what is due, for cron: first what schedules say; then mark the
    workers that are missing, wait for the grace time, look again.

    Workers do this for each other all the time; from cron it helps when the last one may die. The exit code is 10 if
    workers were found lost and 0 if not; other codes tell what went wrong.

    \b
    Example: agentq reap
    Example: agentq reap --json
    """
    server = reach(ctx)
    scheduled = Scheduler(server.store, server.settings.tick_ms).run_fully()
    reaped = Reaper(server.store, server.settings).reap_fully()
    if json:
        print_json({"lost": reaped.lost, "runs": reaped.runs, "doubtful": reaped.doubtful, "scheduled": scheduled})
    else:
        if scheduled:
            print(f"Schedules made {_runs(scheduled)}.")
        if reaped.lost:
            print(f"Lost {', '.join(reaped.lost)}; {_runs(reaped.runs)} requeued.")
        elif not scheduled:
            print("Nothing to do.")
    raise typer.Exit(REQUEUED if reaped.lost or reaped.runs else 0)


def _runs(number: int) -> str:
    return f"{number} {'run' if number == 1 else 'runs'}"
