"""Files that say what a surface is. A test makes the text anew and compares; `--rewrite-surface` writes the files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from difflib import unified_diff
from pathlib import Path
from typing import Any

import pytest

WIDTH = 118
"""What fits into a line of this many characters is not spread over several."""
SHOWN_LINES = 200
"""Lines of a difference that are shown; the rest is counted."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("golden").addoption(
        "--rewrite-surface", action="store_true", help="write the files of tests/surface/golden instead of comparing"
    )


def outline(value: Any, depth: int = 0, head: str = "") -> Iterator[str]:
    """JSON in lines that differ well: keys in order, each part that is too long for one line in lines of its own."""
    line = "  " * depth + head + json.dumps(value, ensure_ascii=False, sort_keys=True)
    if not value or not isinstance(value, dict | list) or (head and len(line) <= WIDTH):
        yield line
        return
    if head:
        yield ("  " * depth + head).rstrip()
    below = depth + bool(head)
    if isinstance(value, dict):
        for name in sorted(value):
            yield from outline(value[name], below, f"{name}: ")
    else:
        for each in value:
            yield from outline(each, below, "- ")


def compare(path: Path, text: str, *, rewrite: bool) -> None:
    """Fail with the difference between a file and a text, or write the text."""
    if rewrite:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return
    expected = path.read_text(encoding="utf-8") if path.exists() else ""
    if text == expected:
        return
    lines = list(unified_diff(expected.splitlines(), text.splitlines(), path.name, "what there is now", lineterm=""))
    more = [f"... and {len(lines) - SHOWN_LINES} lines more"] if len(lines) > SHOWN_LINES else []
    again = f"If that is meant: uv run pytest {path.parents[1].relative_to(path.parents[3])} --rewrite-surface"
    pytest.fail("\n".join(["The public surface has changed.", *lines[:SHOWN_LINES], *more, again]), pytrace=False)
