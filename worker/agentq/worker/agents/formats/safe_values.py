"""Reads JSON of a program without trusting its shape: missing or invalid values are empty. All results are bounded, and
valid JSON again.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

from pydantic import JsonValue

ANSWER_CHARACTERS = 64 << 10
"""How much of an answer is kept; the raw log has all of it."""
INPUT_CHARACTERS = 2 << 10
_STRING_CHARACTERS = 600
_ITEMS_MAX = 24
_DEPTH_MAX = 6
_SUMMARY_CHARACTERS = 200
_TERMINAL_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")

Record = dict[str, Any]


def parse_event(line: str) -> Record | None:
    """The object in a line; None if there is none."""
    if line.lstrip()[:1] != "{":
        return None
    try:
        read = json.loads(line, parse_constant=_reject_constant)
        if _SURROGATE_ESCAPE.search(line):  # half a character of the program's; such text could not be written as UTF-8
            read = json.loads(json.dumps(read, ensure_ascii=False).encode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    return read if isinstance(read, dict) else None


def _reject_constant(_name: str) -> None:
    """NaN and the infinities are not JSON."""


def clean_line(line: str) -> str:
    """The line as valid UTF-8 text, without terminal colours."""
    if "\x1b" in line:
        line = _TERMINAL_ESCAPE.sub("", line)
    return line if line.isascii() else line.encode("utf-8", "replace").decode("utf-8")


def get_record(record: Any, *path: str) -> Record:
    for name in path:
        record = record.get(name) if isinstance(record, dict) else None
    return record if isinstance(record, dict) else {}


def get_list(record: Record, name: str) -> list[Any]:
    value = record.get(name)
    return value if isinstance(value, list) else []


def get_records(record: Record, name: str) -> list[Record]:
    return [each for each in get_list(record, name) if isinstance(each, dict)]


def get_text(record: Record, *names: str) -> str:
    """The first of these that is a non-empty text."""
    return next((value for name in names if isinstance(value := record.get(name), str) and value), "")


def get_number(record: Record, *names: str) -> float:
    """The first of these that is a reasonable number; else 0."""
    for name in names:
        value = record.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return value if abs(value) < 1e15 and math.isfinite(value) else 0
    return 0


def get_count(record: Record, *names: str) -> int:
    return max(0, int(get_number(record, *names)))


def cut_line(text: str, characters: int = _SUMMARY_CHARACTERS) -> str:
    """The beginning of a text, on one line."""
    words = " ".join(text[: characters * 4].split())
    return words if len(words) <= characters else f"{words[: characters - 1]}…"


def summarize_input(value: JsonValue) -> str:
    """What a tool is used on, as far as its input says."""
    if isinstance(value, str):
        return cut_line(value)
    if not isinstance(value, dict):
        return ""
    for name in _SUMMARY_FIELDS:
        field = value.get(name)
        if isinstance(field, list) and field and all(isinstance(word, str) for word in field):
            field = " ".join(str(word) for word in field[:_ITEMS_MAX])
        if isinstance(field, str) and field:
            return cut_line(field)
    return ""


_SUMMARY_FIELDS = (
    *("command", "cmd", "file_path", "filePath", "absolute_path", "notebook_path", "path", "pattern", "query", "url"),
    *("description", "skill", "prompt", "name"),
)


def shrink_value(value: Any) -> JsonValue:
    """A value cut to the reported size: short texts, short lists, limited depth; beyond that a text."""
    less = _shrink_deep(value, _DEPTH_MAX)
    shown = json.dumps(less, ensure_ascii=False, allow_nan=False)
    return less if len(shown) <= INPUT_CHARACTERS else f"{shown[:INPUT_CHARACTERS]}…"


def _shrink_deep(value: Any, depth: int) -> JsonValue:
    if isinstance(value, str):
        return value if len(value) <= _STRING_CHARACTERS else f"{value[:_STRING_CHARACTERS]}…"
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        return value if abs(value) < 1e15 and math.isfinite(value) else None
    if depth == 0:
        return "…"
    if isinstance(value, dict):
        some = list(value.items())[:_ITEMS_MAX]
        return {str(name)[:_SUMMARY_CHARACTERS]: _shrink_deep(each, depth - 1) for name, each in some}
    if isinstance(value, list):
        return [_shrink_deep(each, depth - 1) for each in value[:_ITEMS_MAX]]
    return None


def extract_text(content: Any) -> str:
    """The text of a message's content: a text, or the text parts of a list."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    return "\n".join(text for part in content if isinstance(part, dict) and (text := get_text(part, "text")))


def cut_answer(text: str) -> str:
    """An answer, cut to the kept length."""
    return text if len(text) <= ANSWER_CHARACTERS else f"{text[:ANSWER_CHARACTERS]}…"
