"""The command `agentq`."""

from __future__ import annotations

import sys
from importlib.metadata import version as installed_version

import typer

from agentq.coordinator.errors import AgentqError

commands = typer.Typer(no_args_is_help=True, add_completion=False, help="Runs on any number of machines, none lost.")


@commands.command()
def demo() -> None:
    """Run a small graph on the embedded server, kill a worker in the middle, and prove that nothing was lost.

    Example: agentq demo
    """
    from agentq.cli.demo import play

    raise typer.Exit(play())


@commands.command()
def version() -> None:
    """Show the version of agentq.

    Example: agentq version
    """
    typer.echo(f"agentq {installed_version('agentq')}")


def app() -> None:
    """Run a command; what goes wrong is one sentence and an exit code."""
    try:
        commands()
    except AgentqError as error:
        typer.echo(f"agentq: {error}", err=True)
        sys.exit(error.exit_code)
