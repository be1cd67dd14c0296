"""`agentq reap`: runs both passes of the reaper and due schedules, for cron."""

from __future__ import annotations

import typer

from agentq.cli.connect import connect_server
from agentq.cli.options import Json
from agentq.cli.render import print_json
from agentq.coordinator.duties.reaper import Reaper
from agentq.coordinator.duties.scheduler import Scheduler
from agentq.worker.cleanup.takeover import take_over_locally

REQUEUED_EXIT = 10


def reap(ctx: typer.Context, json: Json = False) -> None:
    """Requeue the runs of lost workers and start due runs, for cron.

    Workers do this for each other all the time; from cron it helps when the last one may die. A worker of this host
    whose process is dead is lost at once. One elsewhere is lost when its lease is over and it does not come back: the
    call waits for that, a lease (30s) at the most. The exit code is 10 if workers were found lost and 0 if not; other
    codes tell what went wrong.

    \b
    Example: agentq reap
    Example: agentq reap --json
    """
    server = connect_server(ctx)
    scheduled = Scheduler(server.store, server.settings.tick_ms).run_fully()
    dead = take_over_locally(server.store, server.settings.namespace)
    reaped = Reaper(server.store, server.settings).reap_fully()
    lost = sorted({*reaped.lost, *(worker.id for worker in dead)})
    runs = reaped.runs + sum(len(worker.runs) for worker in dead)
    if json:
        print_json({"lost": lost, "runs": runs, "doubtful": reaped.doubtful, "scheduled": scheduled})
    else:
        if scheduled:
            print(f"Schedules made {_format_runs(scheduled)}.")
        if lost:
            print(f"Lost {', '.join(lost)}; {_format_runs(runs)} requeued.")
        elif not scheduled:
            print("Nothing to do.")
    raise typer.Exit(REQUEUED_EXIT if lost or runs else 0)


def _format_runs(number: int) -> str:
    return f"{number} {'run' if number == 1 else 'runs'}"
