"""Faults of a plan: position, one sentence, suggestion."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any, NamedTuple

from agentq.coordinator.errors import Invalid

PROBLEMS_SHOWN = 20
"""Faults shown at once."""
SHOWN_CHARACTERS = 80


class SourcePosition(NamedTuple):
    """A position in a file, counted from 1 as in editors."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


class PlanProblem(NamedTuple):
    """One fault: its position, the path of keys to it, and a suggestion."""

    position: SourcePosition
    path: str
    sentence: str
    suggestion: str = ""

    def __str__(self) -> str:
        where = f"{self.position}: {self.path}: " if self.path else f"{self.position}: "
        hint = f" {self.suggestion}{'' if self.suggestion.endswith('?') else '.'}" if self.suggestion else ""
        return f"{where}{self.sentence}.{hint}"

    def to_json(self) -> dict[str, Any]:
        """The record for `--json`."""
        return {
            **self.position._asdict(),
            "path": self.path,
            "error": self.sentence,
            "suggestion": self.suggestion or None,
        }


class InvalidPlan(Invalid):
    """The plan is not valid."""

    by_place = True

    def __init__(self, faults: Iterable[PlanProblem]) -> None:
        unique = {(fault.position, fault.sentence): fault for fault in reversed(list(faults))}
        self.faults = tuple(sorted(unique.values()))
        shown = [str(fault) for fault in self.faults[:PROBLEMS_SHOWN]]
        hidden_count = len(self.faults) - len(shown)
        super().__init__("\n".join([*shown, *([f"and {hidden_count} more."] if hidden_count else [])]))


def plan_error(position: SourcePosition, path: str, sentence: str, suggestion: str = "") -> InvalidPlan:
    """The error for a fault that prevents reading the rest."""
    return InvalidPlan([PlanProblem(position, path, sentence, suggestion)])


def did_you_mean(text: str, known: Iterable[str]) -> str:
    """A suggestion of the closest known name; empty if none is close, or if the text is too long for a name."""
    close = get_close_matches(text, list(known), n=1, cutoff=0.6) if len(text) <= SHOWN_CHARACTERS else ()
    return f"Did you mean {close[0]!r}?" if close else ""


def quote_value(text: str) -> str:
    """A quoted value, shortened to fit into a sentence."""
    return repr(text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 1] + "…")
