"""`agentq debug`: prints internals of agentq for development and debugging."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Annotated

import typer

from agentq.cli.options import TYPER_SETTINGS
from agentq.coordinator.errors import NotFound
from agentq.coordinator.storage.scripts import SCRIPTS

debug = typer.Typer(**TYPER_SETTINGS, no_args_is_help=True, help="Print internals of agentq: its Lua scripts.")


@debug.callback(epilog="Example: agentq debug script worker/claim")
def _debug() -> None:
    """Print internals of agentq: its Lua scripts."""


@debug.command("script")
def script(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Such as worker/claim; else list all.")] = None,
) -> None:
    """Print a Lua script as the server receives it, includes expanded; without a name, list the scripts.

    \b
    Example: agentq debug script
    Example: agentq debug script worker/claim
    """
    if name is None:
        print("\n".join(sorted(SCRIPTS)))
        return
    if name not in SCRIPTS:
        near = get_close_matches(name, SCRIPTS, n=1)
        hint = f"Did you mean {near[0]}?" if near else "`agentq debug script` lists them."
        raise NotFound(f"There is no script {name[:40]!r}. {hint}")
    print(SCRIPTS[name].assemble().text)
