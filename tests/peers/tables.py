"""Numbers and tables in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

NOTHING = "–"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """The first column is of words, the others of numbers."""
    lines = ["| " + " | ".join(head) + " |", "|" + "|".join(["---"] + ["--:"] * (len(head) - 1)) + "|"]
    cells = ((cell.replace("|", "\\|") for cell in row) for row in rows)  # a command may be named script|exists
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in cells)])


def number(value: float | None, digits: int = 0) -> str:
    return NOTHING if value is None else f"{value:,.{digits}f}"


def fine(value: float | None) -> str:
    """With one digit after the point where the number is small."""
    return number(value, 1 if (value or 0) < 20 else 0)


def share(value: float | None, whole: float | None) -> str:
    """How much of the whole it is, in brackets."""
    if not value or not whole:
        return ""
    return f" ({value / whole:.3f})" if value / whole < 0.1 else f" ({value / whole:.2f})"


def times(value: float | None, unit: float | None) -> str:
    """How many times the unit it is, in brackets."""
    if not value or not unit:
        return ""
    return f" (×{value / unit:.1f})" if value / unit < 100 else f" (×{value / unit:,.0f})"


def at(tree: Any, *path: str) -> Any:
    """What stands there in a tree of dicts, or nothing."""
    for name in path:
        tree = (tree or {}).get(name)
    return tree
