"""Reads YAML 1.2, restricted to what people expect.

Only `true`, `false`, `null` and numbers are not text; `yes`, `on`, `no` and dates are text. Anchors, aliases, merge
keys and tags are refused, so that a small file cannot become a large plan, and reading creates no objects.
"""

from __future__ import annotations

import re
from typing import Any, NoReturn

import yaml

from agentq.planning.errors import SourcePosition, plan_error, quote_value
from agentq.planning.read.source_tree import SourceList, SourceTable, WrittenFloat, WrittenInt

DEPTH_MAX = 32
"""The deepest nesting of a plan file; a usual one has about six levels."""
DIGITS_MAX = 400
"""The longest number; longer ones are text."""

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_LITERALS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_TAB_ERROR = "found character '\\t' that cannot start any token"


def read_yaml(text: str, file: str) -> Any:
    """Parse one document."""
    try:
        return _YamlReader(text, file).document()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        at = SourcePosition(file, 1, 1) if mark is None else SourcePosition(file, mark.line + 1, mark.column + 1)
        what = " ".join(filter(None, (error.context, error.problem)))
        hint = "YAML is indented with spaces, not with tabs" if _TAB_ERROR in what else ""
        raise plan_error(at, "", f"this is not YAML: {what}", hint) from None
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        at = SourcePosition(file, before.count("\n") + 1, len(before) - before.rfind("\n"))
        raise plan_error(at, "", f"a plan has no character {error.character!r} in it") from None


class _YamlReader:
    """Builds the tree from the parser's events, so that refused content is never constructed."""

    def __init__(self, text: str, file: str) -> None:
        self._file = file
        self._events = yaml.parse(text, _LOADER)

    def document(self) -> Any:
        next(self._events)
        begun = next(self._events)
        if isinstance(begun, yaml.StreamEndEvent):
            return None
        tree = self._value(next(self._events), "", 0)
        next(self._events)
        more = next(self._events)
        if not isinstance(more, yaml.StreamEndEvent):
            self._refuse(more, "", "a plan is one document, and here begins another", "Take the line --- away")
        return tree

    def _value(self, event: Any, path: str, depth: int) -> Any:
        self._check(event, path)
        if depth > DEPTH_MAX:
            self._refuse(event, path, f"this is nested more than {DEPTH_MAX} levels deep")
        if isinstance(event, yaml.MappingStartEvent):
            return self._table(event, path, depth)
        if isinstance(event, yaml.SequenceStartEvent):
            return self._row(event, path, depth)
        return parse_scalar(event.value) if event.implicit[0] else event.value

    def _table(self, begun: Any, path: str, depth: int) -> SourceTable:
        table = SourceTable(self._position(begun), path)
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            key, key_at = self._key(event, path), self._position(event)
            if key in table:
                first = table.key_at(key)
                self._refuse(event, table.path_of(key), f"the key {quote_value(key)} is already in line {first.line}")
            value = next(self._events)
            table.put(key, self._value(value, table.path_of(key), depth + 1), key_at, self._position(value))
        return table

    def _row(self, begun: Any, path: str, depth: int) -> SourceList:
        row = SourceList(self._position(begun), path)
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            row.put(self._value(event, f"{path}[{len(row)}]", depth + 1), self._position(event))
        return row

    def _key(self, event: Any, path: str) -> str:
        self._check(event, path)
        if not isinstance(event, yaml.ScalarEvent):
            self._refuse(event, path, "a key is a word, not a list or a mapping")
        if event.value == "<<" and event.implicit[0]:
            self._refuse(event, path, "a plan has no merge keys", "Put what several tasks share in `defaults`")
        return str(event.value)

    def _check(self, event: Any, path: str) -> None:
        """Refuse anchors, aliases and tags."""
        name = getattr(event, "anchor", None)
        if name is not None:
            mark = "*" if isinstance(event, yaml.AliasEvent) else "&"
            hint = "Put what several tasks share in `defaults`, or in `vars`"
            self._refuse(event, path, f"a plan has no anchors and aliases such as {quote_value(mark + name)}", hint)
        tag = getattr(event, "tag", None)
        if tag is not None:
            written = tag.replace("tag:yaml.org,2002:", "!!")
            self._refuse(event, path, f"a plan has no tags such as {quote_value(written)}", "Put text between quotes")

    def _refuse(self, event: Any, path: str, sentence: str, suggestion: str = "") -> NoReturn:
        raise plan_error(self._position(event), path, sentence, suggestion)

    def _position(self, event: Any) -> SourcePosition:
        return SourcePosition(self._file, event.start_mark.line + 1, event.start_mark.column + 1)


def parse_scalar(text: str) -> Any:
    """The value of a scalar without quotes."""
    if text in _LITERALS:
        return _LITERALS[text]
    if len(text) > DIGITS_MAX:
        return text
    number: WrittenInt | WrittenFloat
    if _INT.fullmatch(text):
        number = WrittenInt(int(text, 0) if text[:2] in ("0o", "0x") else int(text))
    elif _FLOAT.fullmatch(text):
        number = WrittenFloat(text)
    else:
        return text
    number.written = text
    return number
