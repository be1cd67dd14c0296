"""What was read from a plan file: tables, rows and values that know where they stand.

Numbers keep how they were written, since `python: 3.10` is no less a version for being a number.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from agentq.planning.faults import Place


class Whence(NamedTuple):
    """Where a key of a table stands, and its value, and the path to it."""

    key_at: Place
    value_at: Place
    path: str


class Table(dict[str, Any]):
    """Keys and values, in order, each with its place."""

    def __init__(self, at: Place, path: str) -> None:
        super().__init__()
        self.at = at
        self.path = path
        self.places: dict[str, Whence] = {}

    def put(self, key: str, value: Any, key_at: Place, value_at: Place) -> None:
        """Say something of this table."""
        self[key] = value
        self.places[key] = Whence(key_at, value_at, f"{self.path}.{key}" if self.path else key)

    def take(self, key: str, other: Table, *values: Any) -> None:
        """Have what another table says under a key, or another value, and the place where that says so."""
        self[key] = values[0] if values else other[key]
        self.places[key] = other.places[key]

    def key_at(self, key: str) -> Place:
        return self.places[key].key_at

    def value_at(self, key: str) -> Place:
        return self.places[key].value_at

    def without(self, keys: Iterable[str]) -> Table:
        """The same table without some keys."""
        left = set(keys)
        rest = Table(self.at, self.path)
        for key in self:
            if key not in left:
                rest.take(key, self)
        return rest

    def path_of(self, key: str) -> str:
        """The keys by which one comes there in the file."""
        if key in self.places:
            return self.places[key].path
        return f"{self.path}.{key}" if self.path else key


class Row(list[Any]):
    """Values in order, each with its place."""

    def __init__(self, at: Place, path: str) -> None:
        super().__init__()
        self.at = at
        self.path = path
        self.places: list[Place] = []

    def put(self, value: Any, at: Place) -> None:
        self.append(value)
        self.places.append(at)


class Written:
    """A number that knows how it was written."""

    written: str


class WrittenInt(int, Written):
    """A whole number, and its text."""


class WrittenFloat(float, Written):
    """A number with a point, and its text."""


def text_of(value: Any) -> str:
    """A single value as text: as it was written."""
    if isinstance(value, Written):
        return value.written
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(value)


def plain(node: Any) -> Any:
    """The same without places, as JSON has it."""
    if isinstance(node, dict):
        return {key: plain(value) for key, value in node.items()}
    if isinstance(node, list):
        return [plain(value) for value in node]
    if isinstance(node, WrittenInt):
        return int(node)
    return float(node) if isinstance(node, WrittenFloat) else node


def place_of(node: Any, keys: Iterable[Any]) -> tuple[Place, str]:
    """Where some keys lead to, and the path that they make, as far as they lead anywhere."""
    at, path = node.at, node.path
    for key in keys:
        if isinstance(node, Table) and key in node:
            at, path = node.value_at(key), node.path_of(key)
            node = node[key]
        elif isinstance(node, Row) and isinstance(key, int) and key < len(node):
            at, path = node.places[key], f"{node.path}[{key}]"
            node = node[key]
    return at, path
