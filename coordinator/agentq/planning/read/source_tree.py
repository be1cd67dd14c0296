"""The parsed plan file: tables, lists and values with their positions.

Numbers keep their original text, since `python: 3.10` is a version.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from agentq.planning.errors import SourcePosition


class KeyPosition(NamedTuple):
    """The positions of a key and of its value, and the path to it."""

    key_at: SourcePosition
    value_at: SourcePosition
    path: str


class SourceTable(dict[str, Any]):
    """Keys and values in order, each with its position."""

    def __init__(self, at: SourcePosition, path: str) -> None:
        super().__init__()
        self.at = at
        self.path = path
        self.positions: dict[str, KeyPosition] = {}

    def put(self, key: str, value: Any, key_at: SourcePosition, value_at: SourcePosition) -> None:
        """Set a key with its positions."""
        self[key] = value
        self.positions[key] = KeyPosition(key_at, value_at, f"{self.path}.{key}" if self.path else key)

    def copy_key(self, key: str, other: SourceTable, *values: Any) -> None:
        """Copy a key with its position from another table, optionally with another value."""
        self[key] = values[0] if values else other[key]
        self.positions[key] = other.positions[key]

    def key_at(self, key: str) -> SourcePosition:
        return self.positions[key].key_at

    def value_at(self, key: str) -> SourcePosition:
        return self.positions[key].value_at

    def without(self, keys: Iterable[str]) -> SourceTable:
        """A copy without some keys."""
        left = set(keys)
        rest = SourceTable(self.at, self.path)
        for key in self:
            if key not in left:
                rest.copy_key(key, self)
        return rest

    def path_of(self, key: str) -> str:
        """The path of a key in the file."""
        if key in self.positions:
            return self.positions[key].path
        return f"{self.path}.{key}" if self.path else key


class SourceList(list[Any]):
    """Values in order, each with its position."""

    def __init__(self, at: SourcePosition, path: str) -> None:
        super().__init__()
        self.at = at
        self.path = path
        self.positions: list[SourcePosition] = []

    def put(self, value: Any, at: SourcePosition) -> None:
        self.append(value)
        self.positions.append(at)


class WrittenNumber:
    """A number with its original text."""

    written: str


class WrittenInt(int, WrittenNumber):
    """An integer with its original text."""


class WrittenFloat(float, WrittenNumber):
    """A float with its original text."""


def source_text(value: Any) -> str:
    """A scalar as text, as it was written."""
    if isinstance(value, WrittenNumber):
        return value.written
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(value)


def strip_positions(node: Any) -> Any:
    """A copy without positions, for JSON."""
    if isinstance(node, dict):
        return {key: strip_positions(value) for key, value in node.items()}
    if isinstance(node, list):
        return [strip_positions(value) for value in node]
    if isinstance(node, WrittenInt):
        return int(node)
    return float(node) if isinstance(node, WrittenFloat) else node


def find_position(node: Any, keys: Iterable[Any]) -> tuple[SourcePosition, str]:
    """The position and path of the value at these keys, as far as they exist."""
    at, path = node.at, node.path
    for key in keys:
        if isinstance(node, SourceTable) and key in node:
            at, path = node.value_at(key), node.path_of(key)
            node = node[key]
        elif isinstance(node, SourceList) and isinstance(key, int) and key < len(node):
            at, path = node.positions[key], f"{node.path}[{key}]"
            node = node[key]
    return at, path
