"""The short table of the comparison, which stands in a README: one row for each peer."""

from __future__ import annotations

import re
from typing import Any

from peers.roster import ADAPTERS, LIMIT, OURS
from peers.tables import NOTHING, at, number, share, table, times

_PART = re.compile(r"(<!-- peers -->\n).*?(<!-- end -->)", re.DOTALL)
HEAD = (
    *("peer", "submit/s", "in bulk/s", "drained/s", "latency p50 µs", "idle commands/s", "bytes a pending run"),
    *("reads a run", "started again after SIGKILL"),
)


def compact(results: dict[str, Any]) -> str:
    """A line about the machine, the table, and what is to be known to read it."""
    peers = {name: found for name, found in results["peers"].items() if (ADAPTERS / f"peer_{name}.py").exists()}
    order = sorted(peers, key=lambda name: (name != LIMIT, name != OURS, -(at(peers[name], "drain", "drain") or 0)))
    machine = results["machine"]
    about = (
        f"{machine['server']}, Python {machine['python']}, {machine['cpus']} cores, {machine['date']}. One worker "
        "each, agentq's with its defaults, the others' set for the highest rate; SIGKILL with everybody's defaults."
    )
    note = "In brackets: the share of `raw`, or how many times it is. `c32`: no bulk call; 32 submits at a time."
    rows = [_row(name, peers[name], peers.get(LIMIT, {})) for name in order]
    return f"{about}\n\n{table(HEAD, rows)}\n\n{note}"


def _row(name: str, found: dict[str, Any], raw: dict[str, Any]) -> list[str]:
    def rate(key: str) -> str:
        value = at(found, "drain", key)
        return number(value) + share(value, at(raw, "drain", key))

    latency, pending = at(found, "latency", "p50_us"), at(found, "drain", "pending_bytes")
    bulk = rate("enqueue_bulk")
    return [
        f"{name} {found.get('version') or ''}".strip(),
        rate("enqueue_single"),
        f"{bulk} c32" if at(found, "drain", "bulk_kind") == "concurrent-32" else bulk,
        rate("drain"),
        number(latency) + times(latency, at(raw, "latency", "p50_us")),
        number(at(found, "idle", "commands_per_s"), 1),
        number(pending) + times(pending, at(raw, "drain", "pending_bytes")),
        number(at(found, "drain", "reads_per_job"), 2),
        started_again(at(found, "crash", "default")),
    ]


def started_again(crash: dict[str, Any] | None) -> str:
    """Whether a job whose worker was killed was started again, and after how long."""
    if not crash:
        return NOTHING
    if crash["after_s"] is not None:
        return f"yes, {crash['after_s']:.1f} s"
    if crash.get("after_next_job_s"):
        return f"only when another job came ({crash['after_next_job_s']:.0f} s)"
    return "no"


def written_into(page: str, results: dict[str, Any]) -> str:
    """A page with the table made anew between its markers."""
    if not _PART.search(page):
        raise ValueError(
            "The page has no place for the table; write <!-- peers --> and <!-- end --> on lines of their own."
        )
    return _PART.sub(lambda part: f"{part[1]}{compact(results)}\n{part[2]}", page)
