"""Which runs a command is for: those that were typed, or the newest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from agentq.cli.server import note


class Finder(Protocol):
    """A server, or what stands in its place."""

    def find(self, text: str | None, *, live: bool = False) -> str:
        """The id of the run that was typed, or of the newest."""


def all_of(place: Finder, typed: Sequence[str]) -> list[str]:
    """The ids of runs that were typed."""
    return [place.find(text) for text in typed]


def chosen(place: Finder, typed: Sequence[str] | str | None) -> list[str]:
    """The ids of runs that were typed; without any, the newest run, which is said."""
    if typed or typed == "":
        return all_of(place, [typed] if isinstance(typed, str) else typed)
    newest = place.find(None)
    note(f"the newest run is {newest}.")
    return [newest]
