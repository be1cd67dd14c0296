"""Which runs a command is for: those that were typed, or the newest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from agentq.cli.connect import print_note


class RunFinder(Protocol):
    """A server, or what stands in its place."""

    def find(self, text: str | None, *, live: bool = False) -> str:
        """The id of the run that was typed, or of the newest."""


def find_runs(place: RunFinder, typed: Sequence[str]) -> list[str]:
    """The ids of runs that were typed."""
    return [place.find(text) for text in typed]


def find_runs_or_newest(place: RunFinder, typed: Sequence[str] | str | None) -> list[str]:
    """The ids of runs that were typed; without any, the newest run, which is said."""
    if typed or typed == "":
        return find_runs(place, [typed] if isinstance(typed, str) else typed)
    newest = place.find(None)
    print_note(f"the newest run is {newest}.")
    return [newest]
