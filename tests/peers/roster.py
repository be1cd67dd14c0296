"""Who takes part: the adapters, what each says of itself, and the variants in which it is measured."""

from __future__ import annotations

import ast
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from support.syntax_trees import parse_python

ADAPTERS = Path(__file__).resolve().parent / "adapters"
LIMIT = "raw"
"""The peer that has no features; all others are compared with it."""
OURS = "agentq"


@dataclass(frozen=True)
class Entry:
    """One variant of one peer."""

    variant: str
    meta: dict[str, Any]
    settings: dict[str, Any]

    @property
    def peer(self) -> str:
        return str(self.meta["name"])

    @property
    def is_limit(self) -> bool:
        return self.peer == LIMIT

    @property
    def is_whole_peer(self) -> bool:
        """Whether it stands for its peer, and is not another way to set it up."""
        return self.variant == self.peer

    def wants(self, measure: str) -> bool:
        return measure in self.settings.get("only", [measure]) and measure not in self.settings.get("skip", [])

    def having(self, **settings: Any) -> Entry:
        return replace(self, settings={**self.settings, **settings})


def meta_of(path: Path) -> dict[str, Any]:
    """The META of an adapter, without an import of it: its library is in another environment."""
    for node in parse_python(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "META":
            meta: dict[str, Any] = ast.literal_eval(node.value)
            return meta
    raise ValueError(f"{path} has no META; write one as a literal.")


def everyone() -> list[dict[str, Any]]:
    """The METAs of all adapters, the limit first."""
    metas = [meta_of(path) for path in ADAPTERS.glob("peer_*.py")]
    return sorted(metas, key=lambda meta: (meta["name"] != LIMIT, meta["name"]))


def chosen(wanted: Collection[str], unwanted: Collection[str]) -> list[Entry]:
    """The variants that were asked for by their own name or their peer's; the limit always comes along."""
    entries = [Entry(variant, meta, own) for meta in everyone() for variant, own in meta["variants"].items()]
    known = {name for entry in entries for name in (entry.peer, entry.variant)}
    if strangers := sorted({*wanted, *unwanted} - known):
        raise SystemExit(f"There is no adapter for {', '.join(strangers)}; there are {', '.join(sorted(known))}.")
    return [
        entry
        for entry in entries
        if (not wanted or entry.is_limit or {entry.peer, entry.variant} & set(wanted))
        and not {entry.peer, entry.variant} & set(unwanted)
    ]
