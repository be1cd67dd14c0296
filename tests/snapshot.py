"""Everything that is in a partition, read at once."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from agentq.coordinator.connection import Connection
from agentq.coordinator.keys import GROUP, KEYS, Key
from agentq.coordinator.link import fields_of

_PATTERNS = [
    (kind, re.compile(re.sub(r"<\w+>", "(.+)", re.sub("^<run>", "(run_[^:]+)", kind.pattern))))
    for kind in sorted(KEYS, key=lambda kind: -len(kind.pattern))
]


@dataclass
class Snapshot:
    """Everything in one partition, by kind of key and the parts of its name."""

    base: str
    values: dict[str, dict[tuple[str, ...], Any]] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)
    ttls: dict[str, int] = field(default_factory=dict)
    pending: dict[str, dict[str, str]] = field(default_factory=dict)
    """Lane → entry → consumer that it was delivered to."""

    def of(self, kind: str) -> dict[tuple[str, ...], Any]:
        return self.values.get(kind, {})

    def one(self, kind: str) -> Any:
        return self.of(kind).get((), {})


def kind_of(name: str, base: str) -> tuple[Key, tuple[str, ...]]:
    """Which line of keys.py a key belongs to."""
    for kind, pattern in _PATTERNS:
        found = pattern.fullmatch(name.removeprefix(base))
        if found:
            return kind, found.groups()
    raise AssertionError(f"keys.py does not know the key {name}")


def take_snapshot(connection: Connection, base: str) -> Snapshot:
    """Read everything in a partition."""
    snapshot = Snapshot(base)
    cursor: str = "0"
    names: set[str] = set()
    while True:
        pattern = base.replace("[", "\\[") + "*"
        cursor, found = connection.command("SCAN", cursor, "MATCH", pattern, "COUNT", 1000)
        names.update(found)
        if str(cursor) == "0":
            break
    for name in names:
        _read_key(connection, snapshot, name)
    return snapshot


def _read_key(connection: Connection, snapshot: Snapshot, name: str) -> None:
    kind, parts = kind_of(name, snapshot.base)
    snapshot.types[name] = connection.command("TYPE", name)
    snapshot.ttls[name] = connection.command("PTTL", name)
    read: dict[str, Callable[[], Any]] = {
        "string": lambda: connection.command("GET", name),
        "hash": lambda: fields_of(connection.command("HGETALL", name)),
        "set": lambda: set(connection.command("SMEMBERS", name)),
        "zset": lambda: fields_of(connection.command("ZRANGE", name, 0, -1, "WITHSCORES")),
        "list": lambda: connection.command("LRANGE", name, 0, -1),
        "stream": lambda: {entry: fields_of(flat) for entry, flat in connection.command("XRANGE", name, "-", "+")},
    }
    if snapshot.types[name] == "none":
        return
    assert snapshot.types[name] == kind.type, f"{name} is a {snapshot.types[name]}, keys.py says {kind.type}"
    snapshot.values.setdefault(kind.name, {})[parts] = read[kind.type]()
    if kind.name == "lane":
        found = connection.command("XPENDING", name, GROUP, "-", "+", 100_000)
        snapshot.pending[parts[0]] = {item[0]: item[1] for item in found}


def runs(snapshot: Snapshot) -> dict[str, dict[str, str]]:
    return {parts[0]: fields for parts, fields in snapshot.of("run").items()}
