"""`agentq bench`: what it says, and that nothing is left of it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from cli.conftest import Cli
from cli.test_examples import EXAMPLES
from support.servers import Server, until

from agentq.bench.http_server import ServerBench, ServerScale
from agentq.bench.throughput import BenchFigure, BenchNamespace
from agentq.cli.commands.bench import AGENTQ_COMMAND, BENCH_PARTS
from agentq.coordinator.storage.connection import Connection

BENCH = [sys.executable, "-m", "agentq.cli.main", "bench"]


def benched(connection: Connection) -> list[str]:
    """Keys of benches, on a server that others use too."""
    return [str(key) for key in connection.command("KEYS", "agentq:{bench-*")]


@pytest.mark.redis_only("a bench measures Redis itself")
@pytest.mark.full("takes 37 s")
def test_the_quick_bench_says_of_each_figure_what_was_aimed_at_and_leaves_no_key(
    cli: Cli, connection: Connection
) -> None:
    answer = cli("bench", "--quick", "--json")

    assert answer.code == 0, answer.err
    figures = [json.loads(line) for line in answer.lines]
    assert {figure["part"] for figure in figures} == {*BENCH_PARTS}
    assert {tuple(figure) for figure in figures} == {
        ("part", "measure", "found", "value", "unit", "most", "least", "reached")
    }
    # What one takes more than the other may be less than nothing, where so little is measured.
    assert all(isinstance(figure["value"], int | float) for figure in figures)
    assert {figure["reached"] for figure in figures} <= {True, False}
    assert benched(connection) == []
    assert "bench --quick" in EXAMPLES


@pytest.mark.full("takes 9 s")
def test_runs_that_are_asked_for_before_the_last_one_has_come_are_measured_too(valkey: Server, folder: Path) -> None:
    """On a busy machine a runner has its run later than the next one is asked for."""
    scale = ServerScale(rounds=1, requests=8, clients=2, cycles=4, pollers=4, followers=1, probes=20, probe_ms=0)
    place = BenchNamespace(valkey.url)
    try:
        figures = list(ServerBench(place, scale, (*AGENTQ_COMMAND, "serve", "--no-token"), folder).figures())
    finally:
        place.close()

    assert [figure.unit for figure in figures[-2:]] == ["ms", "MiB"]


@pytest.mark.full("takes 61 s")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("part", ["coordinator", "waiting", "plans", "worker", "agents"])
def test_an_interrupted_bench_leaves_no_key_and_no_process(
    part: str,
    how: signal.Signals,
    valkey: Server,
    connection: Connection,
    fresh_home: dict[str, str],
    tmp_path: Path,
) -> None:
    """The part of agents is over in three seconds, unless there is a claude that does not end."""
    claude = tmp_path / "claude"
    claude.write_text("#!/bin/sh\nexec sleep 600\n")
    claude.chmod(0o755)
    bench = subprocess.Popen(
        [*BENCH, "--only", part],
        env={**fresh_home, "AGENTQ_URL": valkey.url, "PATH": f"{tmp_path}:{fresh_home['PATH']}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        until(lambda: [key for key in benched(connection) if ":run_" in key], "the bench to submit runs", 60)
        bench.send_signal(how)
        _, said = bench.communicate(timeout=60)
    finally:
        bench.kill()
        bench.wait()

    assert (bench.returncode, said.decode().count("Traceback")) == (130, 0), said.decode()
    assert benched(connection) == []
    assert session_of(bench.pid) == []


def session_of(leader: int) -> list[int]:
    """The processes of a session, by the fifth field of their state."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == leader and fields[0] != "Z":
            found.append(int(entry.name))
    return found


@pytest.mark.full("takes 14 s")
def test_without_an_address_a_bench_has_a_server_of_its_own_and_leaves_nothing_of_it(
    fresh_home: dict[str, str], folder: Path, tmp_path: Path
) -> None:
    """The home of the user is not touched, and its temporary folder is empty again."""
    environment = {**fresh_home, "TMPDIR": str(folder / "t")}
    (folder / "t").mkdir()
    argv = [*BENCH, "--quick", "--only", "cold"]
    done = subprocess.run(argv, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 6
    assert list((folder / "t").iterdir()) == []
    assert not (folder / "data").exists()


@pytest.mark.parametrize(
    ("figure", "aim", "reached"),
    [
        (BenchFigure("", "", 1.4, most=1.4), "≤ 1.4", True),
        (BenchFigure("", "", 1.41, most=1.4), "≤ 1.4", False),
        (BenchFigure("", "", 0.8, least=0.8), "≥ 0.8", True),
        (BenchFigure("", "", 0.79, least=0.8), "≥ 0.8", False),
        (BenchFigure("", "", 61, "MiB", most=60), "≤ 60 MiB", False),
        (BenchFigure("", "", 999, "/s", most=1000), "≤ 1,000 /s", True),
    ],
)
def test_an_aim_is_a_bound_that_is_reached_or_missed(figure: BenchFigure, aim: str, reached: bool) -> None:
    assert (figure.aim, figure.reached) == (aim, reached)
