"""`agentq rq`: returns adopted jobs to RQ's own workers."""

from __future__ import annotations

from typing import Annotated

import typer

from agentq.cli.connect import ServerConnection, connect_server
from agentq.cli.options import TYPER_SETTINGS, Json
from agentq.cli.render import print_json, print_row
from agentq.coordinator.clock import wall_ms
from agentq.coordinator.errors import TryLater, WrongState
from agentq.coordinator.model.durations import format_duration

Queues = Annotated[list[str] | None, typer.Option(metavar="NAME", help="An RQ queue; all of them if none is named.")]

rq = typer.Typer(**TYPER_SETTINGS, no_args_is_help=True)


@rq.callback(epilog="Example: agentq rq export")
def _rq() -> None:
    """Manage queues adopted from RQ."""


@rq.command("export")
def export(ctx: typer.Context, queue: Queues = None, json: Json = False) -> None:
    """Return the waiting jobs from agentq to RQ's lists, in their order, for RQ's own workers.

    First end the workers that adopt these queues (`agentq worker drain`), or they would take the jobs in again; while
    one lives, nothing is done. Jobs that a dead worker holds go back once it is declared lost. Whenever this ends, by
    a failure or a kill, each job is in one place, and calling it again goes on.

    \b
    Example: agentq rq export --queue default
    """
    from agentq.worker.rq.queue_names import to_rq_name
    from agentq.worker.rq.redis_client import check_address
    from agentq.worker.rq.rq_lanes import RqLanes

    server = connect_server(ctx)
    check_address(server.settings.url)
    names = queue or sorted(to_rq_name(name) for name in _adopted_queues(server))
    found = [RqLanes(server.store, name) for name in names]
    for lanes in found:
        _refuse_busy(server, lanes.queue, lanes.rq_queue, lanes.held())
    moved = {lanes.rq_queue: lanes.give_back() for lanes in found}
    if json:
        print_json(moved)
        return
    for name, number in moved.items():
        print_row(name, f"{number} {'job' if number == 1 else 'jobs'} back in RQ's list")
    if not moved:
        print("Nothing was ever adopted from RQ.")


def _adopted_queues(server: ServerConnection) -> list[str]:
    from agentq.coordinator.queues.queues import Queues
    from agentq.worker.rq.queue_names import is_rq_queue

    return [record.queue for record in Queues(server.store).all() if is_rq_queue(record.queue)]


def _refuse_busy(server: ServerConnection, queue: str, name: str, held: int) -> None:
    """Refuse while a worker adopts this queue or still executes its jobs."""
    serving = [record for record in server.records.workers() if queue in record.identity.queues]
    living = [record for record in serving if record.lease_until_ms > wall_ms()]
    if living:
        raise WrongState(
            f"The worker {living[0].id} adopts the RQ queue {name!r} and would take its jobs in again; "
            f"end it first, with `agentq worker drain {living[0].id}`."
        )
    if held:
        wait = format_duration(server.settings.lease_ms + server.settings.tick_ms)
        raise TryLater(
            f"A worker that is gone still holds {held} {'job' if held == 1 else 'jobs'} of the RQ queue {name!r}; "
            f"call `agentq reap`, or this again in {wait}."
        )
