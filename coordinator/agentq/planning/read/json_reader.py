"""Reads JSON and JSON lines with the position of each value, so that faults are reported as for YAML."""

from __future__ import annotations

import re
from bisect import bisect_right
from json.decoder import JSONDecodeError, scanstring  # type: ignore[attr-defined]
from typing import Any, NoReturn

from agentq.planning.errors import SourcePosition, plan_error, quote_value
from agentq.planning.read.source_tree import SourceList, SourceTable
from agentq.planning.read.yaml_reader import DEPTH_MAX, parse_scalar

_SPACE = re.compile(r"[ \t\n\r]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,400})(?:\.[0-9]{1,400})?(?:[eE][-+]?[0-9]{1,4})?(?![0-9.a-zA-Z])")
_LITERALS = {"true": True, "false": False, "null": None}


def read_json(text: str, file: str, *, line: int = 1, path: str = "") -> Any:
    """Parse a text that is one value; `line` is the number of its first line."""
    reader = _JsonReader(text, file, line)
    value, at = reader.value(reader.after_space(0), path, 0)
    if (at := reader.after_space(at)) < len(text):
        reader.refuse(at, path, "here the JSON has ended, and something follows")
    return value


class _JsonReader:
    """Parses the text in one pass."""

    def __init__(self, text: str, file: str, line: int) -> None:
        self._text, self._file, self._line = text, file, line
        self._lines = [0, *(found.end() for found in re.finditer("\n", text))]

    def value(self, at: int, path: str, depth: int) -> tuple[Any, int]:
        """The value at this offset, and the offset after it."""
        if depth > DEPTH_MAX:
            self.refuse(at, path, f"this is nested more than {DEPTH_MAX} levels deep")
        begun = self._text[at : at + 1]
        if begun == "{":
            return self._table(at, path, depth)
        if begun == "[":
            return self._row(at, path, depth)
        if begun == '"':
            return self._string(at, path)
        if found := _NUMBER.match(self._text, at):
            return parse_scalar(found[0]), found.end()
        for word, value in _LITERALS.items():
            if self._text.startswith(word, at):
                return value, at + len(word)
        return self.refuse(
            at, path, f"this is not JSON: a value is expected, not {quote_value(self._text[at : at + 10])}"
        )

    def _table(self, at: int, path: str, depth: int) -> tuple[SourceTable, int]:
        table = SourceTable(self.position(at), path)
        at = self.after_space(at + 1)
        if self._text[at : at + 1] == "}":
            return table, at + 1
        while True:
            if self._text[at : at + 1] != '"':
                self.refuse(at, path, "this is not JSON: a key between double quotes is expected")
            begun, (key, at) = at, self._string(at, path)
            if key in table:
                first = table.key_at(key)
                self.refuse(begun, table.path_of(key), f"the key {quote_value(key)} is already in line {first.line}")
            value_at = self.after_space(self._mark(self.after_space(at), ":", path))
            value, at = self.value(value_at, table.path_of(key), depth + 1)
            table.put(key, value, self.position(begun), self.position(value_at))
            at = self.after_space(at)
            if self._text[at : at + 1] == "}":
                return table, at + 1
            at = self.after_space(self._mark(at, ",", path))

    def _row(self, at: int, path: str, depth: int) -> tuple[SourceList, int]:
        row = SourceList(self.position(at), path)
        at = self.after_space(at + 1)
        if self._text[at : at + 1] == "]":
            return row, at + 1
        while True:
            begun, (value, at) = at, self.value(at, f"{path}[{len(row)}]", depth + 1)
            row.put(value, self.position(begun))
            at = self.after_space(at)
            if self._text[at : at + 1] == "]":
                return row, at + 1
            at = self.after_space(self._mark(at, ",", path))

    def _string(self, at: int, path: str) -> tuple[str, int]:
        try:
            text, end = scanstring(self._text, at + 1)
        except JSONDecodeError as error:
            self.refuse(error.pos, path, f"this is not JSON: {error.msg}")
        if any("\ud800" <= character <= "\udfff" for character in text):
            self.refuse(at, path, "this text has half a character in it")
        return text, end

    def _mark(self, at: int, mark: str, path: str) -> int:
        if self._text[at : at + 1] != mark:
            self.refuse(at, path, f"this is not JSON: {mark!r} is expected")
        return at + 1

    def after_space(self, at: int) -> int:
        found = _SPACE.match(self._text, at)
        assert found is not None, "it matches no space, too"
        return found.end()

    def position(self, at: int) -> SourcePosition:
        line = bisect_right(self._lines, at)
        return SourcePosition(self._file, line + self._line - 1, at - self._lines[line - 1] + 1)

    def refuse(self, at: int, path: str, sentence: str) -> NoReturn:
        raise plan_error(self.position(at), path, sentence)
