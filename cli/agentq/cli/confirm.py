"""Commands that destroy something ask first: on a terminal in words, elsewhere for `--yes`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from agentq.coordinator.errors import Invalid

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and do nothing.")]


def confirm(what: str, *, yes: bool) -> None:
    """Go on if it was allowed; `what` says what would be done, as in "3 runs would be cancelled"."""
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise Invalid(f"{what}; --yes does it, --dry-run only shows it.")
    print(f"{what}. Go on? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise typer.Exit(1)
