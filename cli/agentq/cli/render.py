"""How answers look: tables and pairs for people on a terminal, plain lines in a pipe, JSON where asked for.

What runs and users write (names, commands, output) may hold anything; no control byte of it reaches a terminal. Colour
is for terminals alone, and NO_COLOR takes it away.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any

# What moves the cursor, changes colours, rings, or turns the direction of writing; and halves of broken characters.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_CONTROL_BUT_LINES = re.compile("(?![\t\n])" + _CONTROL.pattern)

COLOURS = {
    "completed": "green",
    "running": "cyan",
    "claimed": "cyan",
    "failed": "red",
    "cancelled": "yellow",
    "skipped": "yellow",
    "ok": "green",
    "warn": "yellow",
    "fail": "red",
}


def clean(text: str) -> str:
    """The text in one line, with nothing in it that a terminal obeys."""
    return _CONTROL.sub(lambda found: repr(found[0])[1:-1], text)


def clean_lines(text: str) -> str:
    """The same for a text of many lines. A carriage return, with which programs draw over a line, begins a new one."""
    text = re.sub("\r+\n?", "\n", text)
    return _CONTROL_BUT_LINES.sub(lambda found: repr(found[0])[1:-1], text)


def on_terminal() -> bool:
    return sys.stdout.isatty()


def print_json(value: object) -> None:
    """One object on one line."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    print(_CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text), flush=True)


def print_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Rows under heads on a terminal; in a pipe, lines of columns between tabs, for `cut` and `awk`."""
    cleaned = [[clean(cell) for cell in row] for row in rows]
    if not on_terminal():
        for row in cleaned:
            print("\t".join(row))
    elif cleaned:
        from rich.table import Table

        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        for place, head in enumerate(heads):
            last = place == len(heads) - 1
            # Of columns that may wrap, the widest give way first: so only the last does, which is cut all the same.
            table.add_column(head.upper(), no_wrap=not last, overflow="ellipsis" if last else "fold")
        for row in cleaned:
            cells = [_coloured(cell) for cell in row]
            cells[-1].no_wrap = True
            table.add_row(*cells)
        _console().print(table)


def print_pairs(pairs: Iterable[tuple[str, str]], *, indent: int = 0) -> None:
    """Names and values, one on each line; those without a value are left out."""
    shown = [(name, clean(value)) for name, value in pairs if value]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        print(f"{'':{indent}}{dim(f'{name:{width}}')}  {value}")


def print_sentence(text: str) -> None:
    print(clean(text))


def paint(word: str, *, like: str = "") -> str:
    """A word in the colour of what it says, on a terminal."""
    colour = COLOURS.get(like or word)
    if colour is None or not _colourful():
        return word
    number = {"red": 31, "green": 32, "yellow": 33, "cyan": 36}[colour]
    return f"\x1b[{number}m{word}\x1b[0m"


def bold(text: str) -> str:
    return f"\x1b[1m{text}\x1b[0m" if _colourful() else text


def dim(text: str) -> str:
    return f"\x1b[2m{text}\x1b[0m" if _colourful() else text


def _colourful() -> bool:
    import os

    return on_terminal() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _console() -> Any:
    from rich.console import Console

    return Console(highlight=False, markup=False, emoji=False)


def _coloured(cell: str) -> Any:
    from rich.text import Text

    return Text(cell, style=COLOURS.get(cell, ""))
