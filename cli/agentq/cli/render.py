"""How answers look: tables and pairs for people on a terminal, plain lines in a pipe, JSON where asked for.

What runs and users write (names, commands, output) may hold anything; no control byte of it reaches a terminal. Colour
is for terminals alone, and NO_COLOR takes it away.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence, Set

# What moves the cursor, changes colours, rings, or turns the direction of writing; and halves of broken characters.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_CONTROL_BUT_LINES = re.compile("(?![\t\n])" + _CONTROL.pattern)

COLUMN_GAP = 2
"""Blanks between the columns of a table."""
CUT_WIDTH = 12
CUT_WIDTH_MIN = 4
"""So short a column is cut before another one is left out, and when there is none that could be."""
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


def print_table(
    heads: Sequence[str], rows: Iterable[Sequence[str]], *, cut: Set[str] = frozenset(), spare: Sequence[str] = ()
) -> None:
    """Rows under heads on a terminal; in a pipe, lines of columns between tabs, for `cut` and `awk`.

    A terminal gets no column that is empty. Where it is too narrow, the columns in `cut` are cut, the last column if
    there are none, and then the columns in `spare` are left out in their order. All others, such as ids and states,
    stay whole.
    """
    cleaned = [[clean(cell) for cell in row] for row in rows]
    if not on_terminal():
        for row in cleaned:
            print("\t".join(row))
    elif cleaned:
        widths = _fit_columns(heads, cleaned, cut or {heads[-1]}, spare)
        print(bold(_format_line(widths, [head.upper() for head in heads], paint=str)))
        for row in cleaned:
            print(_format_line(widths, row, paint=paint))


def _fit_columns(
    heads: Sequence[str], rows: Sequence[Sequence[str]], cut: Set[str], spare: Sequence[str]
) -> dict[int, int]:
    """The columns that are shown, by place, and how wide each is."""
    from shutil import get_terminal_size

    from rich.cells import cell_len

    room = get_terminal_size().columns
    filled = [at for at in range(len(heads)) if any(row[at] for row in rows)]
    widths = {at: max(map(cell_len, (heads[at], *(row[at] for row in rows)))) for at in filled}
    natural = dict(widths)
    for least, left_out in [*((CUT_WIDTH, head) for head in spare), (CUT_WIDTH_MIN, "")]:
        while (excess := sum(widths.values()) + COLUMN_GAP * (len(widths) - 1) - room) > 0:
            widest = max((at for at in widths if heads[at] in cut), key=lambda at: widths[at], default=None)
            if widest is None or widths[widest] <= least:
                break
            widths[widest] = max(least, widths[widest] - excess)
        if excess <= 0 or not left_out:
            break
        # What is cut may be longer again when another column has gone.
        widths = {at: natural[at] for at in widths if heads[at] != left_out}
    return widths


def _format_line(widths: Mapping[int, int], cells: Sequence[str], paint: Callable[[str], str]) -> str:
    """One line of a table. Characters that take two columns on a terminal count as two."""
    from rich.cells import cell_len, set_cell_size

    shown = []
    for at, width in widths.items():
        cell = cells[at]
        taken = cell_len(cell)
        if taken > width:
            cell, taken = f"{set_cell_size(cell, width - 1)}…", width
        shown.append(paint(cell) + " " * (width - taken))
    return (" " * COLUMN_GAP).join(shown).rstrip()


def print_row(*cells: str) -> None:
    """One line about one thing, with columns between tabs in a pipe, as tables have them, else between blanks."""
    gap, shown = (" " * COLUMN_GAP, paint) if on_terminal() else ("\t", str)
    cleaned = [clean(cell) for cell in cells]
    while cleaned and not cleaned[-1]:
        cleaned.pop()
    print(gap.join(shown(cell) for cell in cleaned if cell or not on_terminal()), flush=True)


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
    if colour is None or not _uses_colour():
        return word
    number = {"red": 31, "green": 32, "yellow": 33, "cyan": 36}[colour]
    return f"\x1b[{number}m{word}\x1b[0m"


def bold(text: str) -> str:
    return f"\x1b[1m{text}\x1b[0m" if _uses_colour() else text


def dim(text: str) -> str:
    return f"\x1b[2m{text}\x1b[0m" if _uses_colour() else text


def _uses_colour() -> bool:
    import os

    return on_terminal() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
