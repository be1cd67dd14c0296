"""Everything that is in a partition, read at once."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from agentq.coordinator.storage.connection import CommandArgument, Connection
from agentq.coordinator.storage.keys import CONSUMER_GROUP, KEY_KINDS, KeyKind
from agentq.coordinator.storage.socket_link import pairs_to_dict

_PATTERNS = [
    (kind, re.compile(re.sub(r"<\w+>", "(.+)", re.sub("^<run>", "(run_[^:]+)", kind.pattern))))
    for kind in sorted(KEY_KINDS, key=lambda kind: -len(kind.pattern))
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

    def put(self, name: str, kind: str, ttl: int, value: Any, pending: Sequence[Any]) -> None:
        """Take in a key as the server tells of it; of a lane, what is delivered as well."""
        line, parts = kind_of(name.removeprefix(self.base))
        assert kind == line.type, f"{name} is a {kind}, keys.py says {line.type}"
        self.types[name], self.ttls[name] = kind, ttl
        self.values.setdefault(line.name, {})[parts] = _VALUES[kind](value)
        if line.name == "lane":
            self.pending[parts[0]] = {item[0]: item[1] for item in pending}

    def of(self, kind: str) -> dict[tuple[str, ...], Any]:
        return self.values.get(kind, {})

    def one(self, kind: str) -> Any:
        return self.of(kind).get((), {})


@lru_cache(10_000)
def kind_of(name: str) -> tuple[KeyKind, tuple[str, ...]]:
    """Which line of keys.py a key belongs to; its name without the base."""
    for kind, pattern in _PATTERNS:
        found = pattern.fullmatch(name)
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
    about = connection.commands([(word, name) for name in names for word in ("TYPE", "PTTL")])
    there = [
        (name, kind, ttl) for name, kind, ttl in zip(names, about[::2], about[1::2], strict=True) if kind != "none"
    ]
    values = connection.commands([_read(name, kind) for name, kind, _ in there])
    for (name, kind, ttl), value in zip(there, values, strict=True):
        is_lane = kind_of(name.removeprefix(base))[0].name == "lane"
        pending = connection.command("XPENDING", name, CONSUMER_GROUP, "-", "+", 100_000) if is_lane else ()
        snapshot.put(name, kind, ttl, value, pending)
    return snapshot


def _read(name: str, kind: str) -> tuple[CommandArgument, ...]:
    words: dict[str, tuple[CommandArgument, ...]] = {
        "string": ("GET", name),
        "hash": ("HGETALL", name),
        "set": ("SMEMBERS", name),
        "zset": ("ZRANGE", name, 0, -1, "WITHSCORES"),
        "list": ("LRANGE", name, 0, -1),
        "stream": ("XRANGE", name, "-", "+"),
    }
    return words[kind]


_VALUES: Mapping[str, Callable[[Any], Any]] = {
    "string": str,
    "hash": pairs_to_dict,
    "set": set,
    "zset": pairs_to_dict,
    "list": list,
    "stream": lambda entries: {entry: pairs_to_dict(flat) for entry, flat in entries},
}
"""What is read of a key, by its type, as the invariants want it."""


def runs(snapshot: Snapshot) -> dict[str, dict[str, str]]:
    return {parts[0]: fields for parts, fields in snapshot.of("run").items()}
