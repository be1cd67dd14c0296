"""The parser that the tests of the source share."""

from __future__ import annotations

import ast
import gc
from pathlib import Path

from support.syntax_trees import parse_python


def test_a_callback_of_the_collector_that_parses_does_not_disturb_a_parse() -> None:
    """On CPython before 3.11.8, ast.parse alone fails here."""

    def parse_too(phase: str, _: object) -> None:
        if phase == "start":
            ast.parse("a = 1")

    before, source = gc.get_threshold(), Path(__file__).read_text(encoding="utf-8")
    gc.callbacks.append(parse_too)
    gc.set_threshold(50)
    try:
        for number in range(100):
            parse_python(f"{source}\n# {number}")
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(parse_too)
