"""`agentq queue`: lists, pauses, drains, purges and moves queues."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from agentq.cli.confirm import DryRun, Yes, confirm
from agentq.cli.connect import connect_backend, print_note
from agentq.cli.options import TYPER_SETTINGS, Json
from agentq.cli.render import on_terminal, print_json, print_row, print_table
from agentq.cli.unknown_names import note_unknown_queues
from agentq.coordinator.clock import wall_ms
from agentq.coordinator.errors import Invalid, WaitTimedOut
from agentq.coordinator.model.durations import format_duration, format_iso, parse_duration_ms
from agentq.coordinator.model.lifecycle import State
from agentq.coordinator.public_json.queues import queue_json
from agentq.coordinator.queues.queues import ALL_QUEUES, check_move
from agentq.coordinator.queues.stats import QueuePause, QueueStats

if TYPE_CHECKING:
    from agentq.sdk.backend import Backend

Opt = typer.Option
QueueNames = Annotated[list[str] | None, typer.Argument(metavar="QUEUE", help="Queues, by name.")]
Queue = Annotated[str, typer.Argument(metavar="QUEUE", help="A queue, by name.")]
All = Annotated[bool, Opt("--all", help="All queues, also those made later.")]
Why = Annotated[str | None, Opt(metavar="TEXT", help="Reason, shown by `agentq why`.")]

queue = typer.Typer(**TYPER_SETTINGS, no_args_is_help=True, help="List, pause, drain, purge and move queues.")


@queue.callback()
def _queue() -> None:
    """List, pause, drain, purge and move queues."""


@queue.command("ls")
def ls(ctx: typer.Context, json: Json = False) -> None:
    """List queues: their runs by state, the age of the oldest waiting run, and runs submitted and ended per minute.

    In a pipe there is a column for every state: blocked, scheduled, pending, claimed, running, waiting, completed,
    failed, cancelled, skipped.

    \b
    Example: agentq queue ls
    """
    records = connect_backend(ctx).queues.all()
    if json:
        for record in records:
            print_json(queue_json(record))
    elif not on_terminal():
        print_table([], [_queue_row(record, list(State)) for record in records])
    elif records:
        used = [state for state in State if any(state in each.counts for each in records)]
        heads = ["queue", *used, "oldest", "in/min", "out/min", ""]
        print_table(heads, [_queue_row(record, used) for record in records])
    else:
        print_note("there are no queues yet; the first `agentq submit` makes one.")


@queue.command("pause")
def pause(ctx: typer.Context, queues: QueueNames = None, all_queues: All = False, why: Why = None) -> None:
    """Pause claims from queues until they are resumed; claimed runs continue.

    \b
    Example: agentq queue pause default --why maintenance
    Example: agentq queue pause --all
    """
    backend = connect_backend(ctx)
    names = _queue_names(queues, all_queues)
    note_unknown_queues(backend, queues or ())
    for name in names:
        backend.queues.pause(name, _pause_reason(why))
        print_row(name, "paused")
    _note_held_runs(backend, queues or [])


@queue.command("resume")
def resume(ctx: typer.Context, queues: QueueNames = None, all_queues: All = False) -> None:
    """Resume queues that were paused or drained.

    \b
    Example: agentq queue resume QUEUE
    """
    backend = connect_backend(ctx)
    for name in _queue_names(queues, all_queues):
        backend.queues.resume(name)
        print_row(name, "resumed")


@queue.command("drain")
def drain(
    ctx: typer.Context,
    name: Queue,
    why: Why = None,
    wait: Annotated[bool, Opt("--wait", help="Wait until the queue is empty.")] = False,
    timeout: Annotated[str | None, Opt(metavar="DURATION", help="Longest time to wait.")] = None,
) -> None:
    """Refuse new runs in a queue until it is resumed; runs that are in it are executed.

    \b
    Example: agentq queue drain default
    """
    if timeout is not None and not wait:
        raise Invalid("--timeout means nothing without --wait.")
    timeout_ms = None if timeout is None else parse_duration_ms(timeout)
    backend = connect_backend(ctx)
    note_unknown_queues(backend, [name])
    backend.queues.drain(name, _pause_reason(why))
    print_row(name, "draining")
    if wait:
        left = backend.queues.wait_until_empty(name, timeout_ms)
        if left:
            raise WaitTimedOut(f"{left} {'run is' if left == 1 else 'runs are'} left in {name}.")


@queue.command("purge")
def purge(
    ctx: typer.Context,
    name: Queue,
    state: Annotated[
        list[str] | None, Opt(metavar="STATE", help="Only runs that are pending, scheduled or blocked.")
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Cancel the waiting runs of a queue; claimed runs continue. Asks first; without a terminal it needs --yes.

    \b
    Example: agentq queue purge default --dry-run
    Example: agentq queue purge default --state scheduled --yes
    """
    states = [_parse_queued_state(word) for word in state or ("pending", "scheduled", "blocked")]
    backend = connect_backend(ctx)
    note_unknown_queues(backend, [name])
    found = backend.queues.get(name)
    waiting = sum(found.counts.get(state, 0) for state in states) if found is not None else 0
    if dry_run:
        _print_count(name, "would be cancelled", waiting, json=json)
        return
    if waiting:
        confirm(f"{waiting} {'run' if waiting == 1 else 'runs'} of {name} would be cancelled", yes=yes)
    _print_count(name, "cancelled", backend.queues.purge(name, states), json=json)


@queue.command("move")
def move(
    ctx: typer.Context,
    name: Queue,
    target: Annotated[str, typer.Argument(metavar="TO", help="Where to.")],
    json: Json = False,
) -> None:
    """Move the waiting runs of a queue to another; claimed runs continue.

    \b
    Example: agentq queue move default slow
    """
    backend = connect_backend(ctx)
    check_move(name, target)
    note_unknown_queues(backend, [name])
    _print_count(name, "moved", backend.queues.move(name, target), json=json)


@queue.command("weigh")
def weigh(
    ctx: typer.Context,
    name: Queue,
    fair_key: Annotated[str, typer.Argument(metavar="KEY", help="The fair key, as in `agentq submit --fair-key`.")],
    weight: Annotated[float, typer.Argument(metavar="WEIGHT", help="Turns per turn of another key.")],
) -> None:
    """Set the weight of a fair key: its share of turns in a queue.

    \b
    Example: agentq queue weigh default team-a 3
    """
    connect_backend(ctx).queues.weigh(name, fair_key, weight)
    print_row(name, fair_key, f"{weight:g}")


def _queue_names(queues: list[str] | None, all_queues: bool) -> list[str]:
    if bool(queues) == all_queues:
        raise Invalid("Name the queues, or give --all." if not queues else "Name queues or give --all, not both.")
    return queues or [ALL_QUEUES]


def _pause_reason(why: str | None) -> str:
    return why or f"asked by {os.environ.get('USER', 'somebody')}"


def _parse_queued_state(word: str) -> State:
    if word not in ("pending", "scheduled", "blocked"):
        raise Invalid(f"--state {word[:40]}: only runs that are pending, scheduled or blocked wait in a queue.")
    return State(word)


def _print_count(name: str, what: str, number: int, *, json: bool) -> None:
    if json:
        print_json({"queue": name, what.replace(" ", "_"): number})
    else:
        print_row(name, f"{number} {what}")


def _note_held_runs(backend: Backend, names: list[str]) -> None:
    counts = [each.counts for each in backend.queues.all() if not names or each.queue in names]
    held = sum(count.get(State.CLAIMED, 0) + count.get(State.RUNNING, 0) for count in counts)
    if held:
        print_note(f"{held} that {'was' if held == 1 else 'were'} claimed before {'goes' if held == 1 else 'go'} on.")


def _format_age(at_ms: int) -> str:
    return format_duration(wall_ms() - at_ms) if on_terminal() else format_iso(at_ms)


def _queue_row(record: QueueStats, used: list[State]) -> list[str]:
    told: list[tuple[str, Callable[[QueueStats], QueuePause | None]]] = [
        ("paused", lambda each: each.paused),
        ("drained", lambda each: each.drained),
    ]
    notes = [f"{word}: {pause.why}" for word, of in told if (pause := of(record)) is not None]
    return [
        record.queue,
        *(str(record.counts.get(state, "" if on_terminal() else 0)) for state in used),
        "" if record.oldest_ms is None else _format_age(record.oldest_ms),
        f"{record.submitted_a_minute:.0f}",
        f"{record.ended_a_minute:.0f}",
        ", ".join(notes),
    ]
