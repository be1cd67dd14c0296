"""`agentq reap`: both passes of the reaper, for cron."""

from __future__ import annotations

import typer

from agentq.cli.options import Json
from agentq.cli.render import print_json
from agentq.cli.server import reach
from agentq.coordinator.duties.reaper import Reaper

REQUEUED = 10


def reap(ctx: typer.Context, json: Json = False) -> None:
    """Requeue the runs of workers that are gone, for cron: mark them, wait for the grace time, look again.

    Workers do this for each other all the time; from cron it helps when the last one may die. The exit code is 0 if
    there was nothing to do and 10 if workers were found lost; other codes tell what went wrong.

    \b
    Example: agentq reap
    Example: agentq reap --json
    """
    server = reach(ctx)
    reaped = Reaper(server.store, server.settings).reap_fully()
    if json:
        print_json({"lost": reaped.lost, "runs": reaped.runs, "doubtful": reaped.doubtful})
    elif reaped.lost:
        print(f"Lost {', '.join(reaped.lost)}; {reaped.runs} {'run' if reaped.runs == 1 else 'runs'} requeued.")
    else:
        print("Nothing to do.")
    raise typer.Exit(REQUEUED if reaped.lost or reaped.runs else 0)
