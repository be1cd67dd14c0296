"""What was read from a plan file: tables, rows and values that know where they stand.

Numbers keep how they were written, since `python: 3.10` is no less a version for being a number.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from agentq.planning.errors import SourcePosition


class KeyPosition(NamedTuple):
    """Where a key of a table stands, and its value, and the path to it."""

    key_at: SourcePosition
    value_at: SourcePosition
    path: str


class SourceTable(dict[str, Any]):
    """Keys and values, in order, each with its place."""

    def __init__(self, at: SourcePosition, path: str) -> None:
        super().__init__()
        self.at = at
        self.path = path
        self.positions: dict[str, KeyPosition] = {}

    def put(self, key: str, value: Any, key_at: SourcePosition, value_at: SourcePosition) -> None:
        """Say something of this table."""
        self[key] = value
        self.positions[key] = KeyPosition(key_at, value_at, f"{self.path}.{key}" if self.path else key)

    def copy_key(self, key: str, other: SourceTable, *values: Any) -> None:
        """Have what another table says under a key, or another value, and the place where that says so."""
        self[key] = values[0] if values else other[key]
        self.positions[key] = other.positions[key]

    def key_at(self, key: str) -> SourcePosition:
        return self.positions[key].key_at

    def value_at(self, key: str) -> SourcePosition:
        return self.positions[key].value_at

    def without(self, keys: Iterable[str]) -> SourceTable:
        """The same table without some keys."""
        left = set(keys)
        rest = SourceTable(self.at, self.path)
        for key in self:
            if key not in left:
                rest.copy_key(key, self)
        return rest

    def path_of(self, key: str) -> str:
        """The keys by which one comes there in the file."""
        if key in self.positions:
            return self.positions[key].path
        return f"{self.path}.{key}" if self.path else key


class SourceList(list[Any]):
    """Values in order, each with its place."""

    def __init__(self, at: SourcePosition, path: str) -> None:
        super().__init__()
        self.at = at
        self.path = path
        self.positions: list[SourcePosition] = []

    def put(self, value: Any, at: SourcePosition) -> None:
        self.append(value)
        self.positions.append(at)


class WrittenNumber:
    """A number that knows how it was written."""

    written: str


class WrittenInt(int, WrittenNumber):
    """A whole number, and its text."""


class WrittenFloat(float, WrittenNumber):
    """A number with a point, and its text."""


def source_text(value: Any) -> str:
    """A single value as text: as it was written."""
    if isinstance(value, WrittenNumber):
        return value.written
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(value)


def strip_positions(node: Any) -> Any:
    """The same without places, as JSON has it."""
    if isinstance(node, dict):
        return {key: strip_positions(value) for key, value in node.items()}
    if isinstance(node, list):
        return [strip_positions(value) for value in node]
    if isinstance(node, WrittenInt):
        return int(node)
    return float(node) if isinstance(node, WrittenFloat) else node


def find_position(node: Any, keys: Iterable[Any]) -> tuple[SourcePosition, str]:
    """Where some keys lead to, and the path that they make, as far as they lead anywhere."""
    at, path = node.at, node.path
    for key in keys:
        if isinstance(node, SourceTable) and key in node:
            at, path = node.value_at(key), node.path_of(key)
            node = node[key]
        elif isinstance(node, SourceList) and isinstance(key, int) and key < len(node):
            at, path = node.positions[key], f"{node.path}[{key}]"
            node = node[key]
    return at, path
