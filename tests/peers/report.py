#!/usr/bin/env python3
"""The results of a comparison as tables: `python tests/peers/report.py results.json`.

With `--into PAGE` the short table is written between `<!-- peers -->` and `<!-- end -->` of a page instead.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from peers.compact import started_again, written_into
from peers.tables import at, fine, number, share, table, times

Peers = dict[str, dict[str, Any]]


def markdown(results: dict[str, Any]) -> str:
    """All tables for which there are results."""
    peers: Peers = results["peers"]
    order = sorted(peers, key=lambda name: (not name.startswith("raw"), -(at(peers[name], "drain", "drain") or 0)))
    parts = [_machine(results), *_limits(results)]
    for make in (_throughput, _latency, _memory, _scaling, _crash):
        parts += make(peers, order)
    errors = [f"- {name}: {error}" for name in order for error in peers[name].get("errors", [])]
    if errors:
        parts += ["### Errors", "\n".join(errors)]
    return "\n\n".join(parts)


def _machine(results: dict[str, Any]) -> str:
    machine = results["machine"]
    return (
        f"Machine: {machine['cpus']} cores (placement {machine['placement']}), kernel {machine['kernel']}, "
        f"{machine['server']}, Python {machine['python']} ({machine['python_ns_per_loop']:.0f} ns per generator step), "
        f"{machine['date']}; suite {results.get('seconds', 0) / 60:.1f} min."
    )


def _limits(results: dict[str, Any]) -> list[str]:
    parts = []
    if found := results.get("redis_benchmark"):
        parts.append("redis-benchmark: " + ", ".join(f"{name} {number(rate)}/s" for name, rate in found.items()))
    if found := results.get("persistence"):
        told = "; ".join(f"{name}: {_rates(rates)}" for name, rates in found.items())
        parts.append(f"raw with an append-only file: {told}")
    if found := results.get("placement"):
        told = "; ".join(
            f"{name}: {_rates(rates)}, latency p50 {number(rates['latency_p50_us'])} µs"
            for name, rates in found.items()
        )
        parts.append(f"raw by placement of server and client: {told}")
    return parts


def _rates(rates: dict[str, float | None]) -> str:
    single, bulk, drained = (number(rates[name]) for name in ("enqueue_single", "enqueue_bulk", "drain"))
    return f"enqueue {single}/s, bulk {bulk}/s, drain {drained}/s"


def _throughput(peers: Peers, order: list[str]) -> list[str]:
    rows = [_throughput_row(peers, name) for name in order if peers[name].get("drain")]
    head = ["peer", "enqueue 1 by 1", "enqueue bulk", "drain", "÷ raw-result", "÷ raw-unpiped", "±"]
    head += ["worker CPU µs/job", "Redis CPU µs/job", "commands/job", "reads/job", "reads/enqueue", "executed"]
    return _section("Throughput (jobs/s; in brackets: share of raw)", head, rows)


def _throughput_row(peers: Peers, name: str) -> list[str]:
    raw, drained = at(peers.get("raw"), "drain"), peers[name]["drain"]
    rate = drained.get("drain") or 0
    with_result = at(peers.get("raw-result"), "drain", "drain") or at(raw, "drain")
    unpiped = at(peers.get("raw-unpiped"), "drain", "drain")
    bulk = number(drained.get("enqueue_bulk")) + share(drained.get("enqueue_bulk"), at(raw, "enqueue_bulk"))
    slow = "" if (drained.get("speed") or 1) > 0.85 else " slow"
    return [
        f"{name} {peers[name].get('version') or ''}".strip(),
        number(drained.get("enqueue_single")) + share(drained.get("enqueue_single"), at(raw, "enqueue_single")),
        f"{bulk} c32" if drained.get("bulk_kind") == "concurrent-32" else bulk,
        number(drained.get("drain")) + share(drained.get("drain"), at(raw, "drain")),
        f"{rate / with_result:.3f}" if with_result else "",
        f"{rate / unpiped:.2f}" if unpiped else "",
        f"{number(_spread(drained, 'drain'))}%{slow}",
        fine(drained.get("worker_cpu_us_per_job")),
        fine(drained.get("redis_cpu_us_per_job")),
        number(drained.get("commands_per_job"), 2),
        number(drained.get("reads_per_job"), 2),
        number(drained.get("enqueue_reads_per_job"), 1),
        _executed(drained["check"]),
    ]


def _executed(check: dict[str, int]) -> str:
    lost = check["expected"] - check["unique"]
    twice = f" ({check['duplicates']} twice)" if check["duplicates"] else ""
    return f"{check['executed']:,}{twice}" + (f" **lost {lost}**" if lost > 0 else "")


def _spread(found: dict[str, Any], name: str) -> float | None:
    """How far the repetition that is farthest from the median is from it, in percent."""
    values = [each[name] for each in found.get("reps") or [] if each.get(name)]
    middle = found.get(name)
    return max(abs(value - middle) / middle * 100 for value in values) if values and middle else None


def _latency(peers: Peers, order: list[str]) -> list[str]:
    base = at(peers.get("raw"), "latency", "p50_us")
    rows = []
    for name in order:
        found, idle = peers[name].get("latency"), peers[name].get("idle")
        if found or idle:
            p50 = at(found, "p50_us")
            rows.append(
                [
                    name,
                    number(p50) + times(p50, base),
                    *(number(at(found, key)) for key in ("p95_us", "p99_us", "n")),
                    *(number(_ms(at(idle, "cold", key)), 1) for key in ("p50_us", "max_us")),
                    number(at(idle, "commands_per_s"), 1),
                    number(at(idle, "cpu_percent"), 2),
                    f"{number(_mib(at(idle, 'rss')))} / {number(_mib(at(idle, 'pss')))}",
                    number(at(idle, "processes")),
                    number(at(peers[name], "drain", "spawn_to_first_job_s"), 2),
                ]
            )
    head = ["peer", "p50 µs (× raw)", "p95 µs", "p99 µs", "n", "idle ≥2.5 s: p50 ms", "max ms", "idle commands/s"]
    head += ["idle CPU %", "RSS / PSS MiB", "processes", "start to first job s"]
    return _section("Latency submit → start, and the idle worker", head, rows)


def _ms(us: float | None) -> float | None:
    return None if us is None else us / 1e3


def _mib(size: float | None) -> float | None:
    return None if size is None else size / 2**20


def _memory(peers: Peers, order: list[str]) -> list[str]:
    base = at(peers.get("raw"), "drain", "pending_bytes")
    rows = []
    for name in order:
        drained = peers[name].get("drain")
        if drained:
            most = list((drained.get("top_commands") or {}).items())[:6]
            rows.append(
                [
                    name,
                    number(drained.get("pending_bytes")) + times(drained.get("pending_bytes"), base),
                    number(drained.get("finished_bytes")),
                    peers[name].get("retention", ""),
                    number(drained.get("net_bytes_per_job")),
                    ", ".join(f"{command} {many:g}" for command, many in most),
                ]
            )
    head = ["peer", "pending (× raw)", "finished", "kept by default", "net bytes/job in drain"]
    head += ["commands/job, inside scripts too"]
    return _section("Redis memory per job (bytes), and what a job costs Redis", head, rows)


def _scaling(peers: Peers, order: list[str]) -> list[str]:
    rows = []
    depths: list[str] = []
    for name in order:
        found = peers[name].get("scaling")
        if found:
            depths = sorted(found, key=int)
            first, last = found[depths[0]], found[depths[-1]]
            rows.append(
                [
                    name,
                    *(number(found[depth]["rate"]) for depth in depths),
                    number(last["rate"] / first["rate"], 2) if first["rate"] and last["rate"] else number(None),
                    number(last["filled"]),
                    str(sum(found[depth]["duplicates"] for depth in depths)),
                ]
            )
    head = ["peer", *(f"{int(depth):,} pending" for depth in depths), "ratio", "really filled", "duplicates"]
    return _section("Drain rate against the number of pending jobs", head, rows)


def _crash(peers: Peers, order: list[str]) -> list[str]:
    rows = []
    for name in sorted(order):
        found = peers[name].get("crash")
        if found:
            settings = peers[name].get("durable_settings", "")
            best = "not needed" if settings.startswith("none needed") else "none offered"
            if "durable" in found:
                best = started_again(found["durable"])
            rows.append([name, started_again(found.get("default")), best, settings])
    head = ["peer", "defaults", "best documented", "which"]
    return _section("kill -9 of the worker mid job: is it started again (new worker at once)?", head, rows)


def _section(title: str, head: list[str], rows: list[list[str]]) -> list[str]:
    return [f"### {title}", table(head, rows)] if rows else []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path)
    parser.add_argument("--into", type=Path, metavar="PAGE", help="write the short table into this page")
    given = parser.parse_args()
    results = json.loads(given.results.read_text(encoding="utf-8"))
    if given.into is None:
        print(markdown(results))
        return
    try:
        page = written_into(given.into.read_text(encoding="utf-8"), results)
    except ValueError as error:
        raise SystemExit(f"{given.into}: {error}") from None
    given.into.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
