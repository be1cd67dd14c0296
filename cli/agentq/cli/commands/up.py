"""`agentq up`: runs a worker and the embedded server in the foreground."""

from __future__ import annotations

import os

import typer

from agentq.cli.commands.worker import Labels, Queues, Slots, serve_worker
from agentq.cli.connect import print_note, read_settings


def up(ctx: typer.Context, slots: Slots = None, queue: Queues = None, label: Labels = None) -> None:
    """Run a worker here, with the embedded server, until Ctrl-C.

    With an address set, it works for that server and starts none. Without --slots it has one per processor. The
    server is restarted if it dies, and keeps running when the worker ends; `agentq down` stops it.

    \b
    Example: agentq up
    """
    given = {"slots": slots, "queue": queue, "label": label}
    code = serve_worker(ctx, {name: value for name, value in given.items() if value is not None}, os.cpu_count() or 1)
    if not read_settings(ctx).settings.url:
        print_note("the worker has ended; its server goes on until `agentq down`.")
    raise typer.Exit(code)
