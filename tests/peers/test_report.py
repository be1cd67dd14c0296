"""The tables of the comparison, from results that somebody has written down; adapters, without their libraries."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from peers.compact import HEAD, compact, written_into
from peers.report import markdown
from peers.roster import ADAPTERS, LIMIT, OURS, chosen, meta_of
from peers.statistic import merged
from support.generated_docs import ROOT
from support.syntax_trees import parse_python

REPORT = ROOT / "tests/peers/report.py"
PAGE = "# A page\n\n<!-- peers -->\nwhat stood here\n<!-- end -->\n\nThe rest.\n"


def drained(single: float, bulk: float | None, rate: float, pending: float, kind: str) -> dict[str, Any]:
    return {
        "enqueue_single": single,
        "enqueue_bulk": bulk,
        "bulk_kind": kind,
        "drain": rate,
        "pending_bytes": pending,
        "finished_bytes": 10.0,
        "reads_per_job": 0.5,
        "check": {"executed": 99, "unique": 98, "expected": 100, "duplicates": 1},
        "reps": [{"drain": rate}, {"drain": rate * 0.9}],
    }


def peer(version: str, drain: dict[str, Any], p50: float, crash: dict[str, Any] | None = None) -> dict[str, Any]:
    found = {"version": version, "drain": drain, "latency": {"p50_us": p50}, "idle": {"commands_per_s": 1.25}}
    return {**found, "crash": {"default": crash}} if crash else found


@pytest.fixture
def results() -> dict[str, Any]:
    machine = {"cpus": 2, "kernel": "6", "python": "3.11.7", "python_ns_per_loop": 23.0, "server": "Redis 7"}
    return {
        "machine": {**machine, "placement": "split", "date": "2026-11-18"},
        "peers": {
            "rq": peer("2.12.0", drained(4000, 20000, 150, 540, "bulk"), 4000, {"after_s": None}),
            "saq": peer("0.26", drained(8000, 17000, 3000, 500, "concurrent-32"), 400, {"after_s": None}),
            "raw": peer("8.1.0", drained(16000, 200000, 200000, 25, "bulk"), 100),
            "raw-result": {"version": "8.1.0", "drain": drained(0, None, 100000, 0, "none")},
            "agentq": peer("0.1.0", drained(8000, 50000, 20000, 250, "bulk"), 300, {"after_s": 31.42}),
        },
    }


def rows(table: str) -> list[list[str]]:
    lines = [line for line in table.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_short_table_has_a_row_for_each_peer_the_limit_first_then_ours_then_by_rate(
    results: dict[str, Any],
) -> None:
    head, *found = rows(compact(results))

    assert head == list(HEAD)
    assert [row[0] for row in found] == ["raw 8.1.0", "agentq 0.1.0", "saq 0.26", "rq 2.12.0"]


def test_the_short_table_compares_with_the_limit(results: dict[str, Any]) -> None:
    _, raw, ours, saq, rq = rows(compact(results))

    assert ours[1:] == [
        *("8,000 (0.50)", "50,000 (0.25)", "20,000 (0.10)", "300 (×3.0)", "1.2", "250 (×10.0)", "0.50", "yes, 31.4 s")
    ]
    assert raw[-1] == "–"
    assert saq[2] == "17,000 (0.085) c32"
    assert rq[-1] == "no"


def test_what_was_not_measured_is_a_dash(results: dict[str, Any]) -> None:
    results["peers"] = {"agentq": {"version": None}}

    _, ours = rows(compact(results))

    assert ours == ["agentq", *["–"] * 8]


def test_all_tables_are_made_of_what_there_is(results: dict[str, Any]) -> None:
    text = markdown(results)

    assert "raw-result" in text
    assert "99 (1 twice) **lost 2**" in text
    assert "kill -9" in text
    assert "pending jobs" not in text


def test_the_short_table_is_written_between_its_markers(results: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "results.json").write_text(json.dumps(results))
    (tmp_path / "PAGE.md").write_text(PAGE)

    done = subprocess.run(
        [sys.executable, str(REPORT), "results.json", "--into", "PAGE.md"], cwd=tmp_path, capture_output=True, text=True
    )

    assert done.returncode == 0, done.stderr
    page = (tmp_path / "PAGE.md").read_text()
    assert page == PAGE.replace("what stood here", compact(results))
    assert written_into(page, results) == page


def test_a_page_without_markers_is_refused_in_a_sentence(results: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="<!-- peers -->"):
        written_into("# A page\n", results)


def test_the_workers_page_has_a_place_for_the_short_table(results: dict[str, Any]) -> None:
    page = (ROOT / "worker/README.md").read_text(encoding="utf-8")

    assert compact(results) in written_into(page, results)


@pytest.mark.parametrize("path", sorted(ADAPTERS.glob("peer_*.py")), ids=lambda path: path.stem)
def test_an_adapter_says_what_it_is_and_can_be_started(path: Path) -> None:
    meta = meta_of(path)

    assert path.stem == meta["module"] == f"peer_{meta['name']}"
    assert meta["packages"]
    assert meta["name"] in meta["variants"]
    assert all(own["profile"] for own in meta["variants"].values())
    assert all(isinstance(meta.get(name, ""), str) for name in ("dist", "settings", "durable", "retention"))
    assert meta["name"] == LIMIT or meta["durable"]
    functions = {node.name for node in parse_python(path.read_text()).body if isinstance(node, ast.FunctionDef)}
    assert {"make_producer", "worker"} <= functions


def test_the_limit_comes_along_with_whoever_is_asked_for() -> None:
    assert [entry.variant for entry in chosen([OURS], ["raw-result", "raw-unpiped"])] == ["raw", "agentq"]


def test_a_peer_that_there_is_not_is_refused_in_a_sentence() -> None:
    with pytest.raises(SystemExit, match="There is no adapter for nobody; there are agentq"):
        chosen(["nobody"], [])


def test_of_repetitions_the_median_counts_and_jobs_are_summed_up() -> None:
    count = {"executed": 1, "unique": 1, "expected": 1, "duplicates": 0}
    found = merged([{"drain": 1.0, "check": count}, {"drain": 2.0, "check": count, "bulk_kind": "bulk"}])

    assert found["drain"] == 1.5
    assert found["check"]["executed"] == 2
    assert found["bulk_kind"] == "bulk"
    assert len(found["reps"]) == 2
