"""`agentq help`: prints the help of a command."""

from __future__ import annotations

from typing import Annotated

import typer


def help(  # noqa: A001 - the function of a command has its name
    ctx: typer.Context,
    command: Annotated[
        list[str] | None, typer.Argument(metavar="COMMAND", help="Such as submit, or queue purge.")
    ] = None,
) -> None:
    """Show the help of a command, as `agentq COMMAND --help` does; without a command, list all.

    \b
    Example: agentq help submit
    Example: agentq help queue purge
    """
    root = ctx.find_root().command
    with root.make_context("agentq", [*(command or ()), "--help"]) as again:
        root.invoke(again)
