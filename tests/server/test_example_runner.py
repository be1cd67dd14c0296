"""`examples/runner.py`: what a runner of anybody's own needs, and what it must not do with its processes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from foreign import Parties
from servers import until
from serving import Serving

ROOT = Path(__file__).parent.parent.parent
LONG = "import sys; print('y' * 300_000); sys.stderr.write('x' * 1_000_000); print(sys.stdin.read().upper())"
FAMILY = "sleep 1000 & echo $! > {folder}/child; echo $$ > {folder}/self; sleep 1000"
Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start(serving: Serving, parties: Parties) -> Iterator[Start]:  # noqa: ARG001 - its runs go before
    """Starts runners with a command for their runs."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(*command: str, **environment: str) -> subprocess.Popen[bytes]:
        argv = [sys.executable, str(ROOT / "examples/runner.py"), serving.url, "--", *command]
        started.append(subprocess.Popen(argv, stdout=subprocess.PIPE, env=environment or None))
        stdout = started[-1].stdout
        assert stdout is not None
        assert stdout.readline().startswith(b"runner ")
        return started[-1]

    yield begin
    for each in started:
        each.kill()
        each.wait()
        if each.stdout is not None:
            each.stdout.close()


def test_it_completes_what_clients_of_both_kinds_submit(serving: Serving, parties: Parties, start: Start) -> None:
    """Defect 13: a process that writes more than a pipe holds, on both of its outputs, is not held up."""
    start(sys.executable, "-c", LONG)
    client = parties.client()
    theirs = client.start("a", "loud")
    ours = serving.submit(kind="agent", agent="claude", prompt="quiet", argv=())

    for run in (theirs["run_id"], ours):
        until(lambda run=run: client.status(run) == "completed", "the run to end")  # type: ignore[misc]
    assert client.result(theirs["session_id"]).json()["result"].endswith("yyy\nLOUD\n")
    assert str(client.http.get(f"/runs/{ours}").json()["outcome"]["result"]).endswith("yyy\nQUIET\n")


def test_a_stop_ends_what_its_process_has_started(parties: Parties, start: Start, tmp_path: Path) -> None:
    """Defect 15."""
    start("sh", "-c", FAMILY.format(folder=tmp_path))
    client = parties.client()
    run = client.start("a")["run_id"]
    until(lambda: (tmp_path / "self").exists() and (tmp_path / "self").read_text().strip(), "the process")
    pids = [int((tmp_path / name).read_text()) for name in ("child", "self")]

    client.http.post(f"/runs/{run}/stop")

    until(lambda: client.status(run) == "stopped", "the run to be stopped")
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), "the processes to be gone")


def test_a_process_that_fails_fails_its_run_with_what_it_said(parties: Parties, start: Start) -> None:
    start("sh", "-c", "echo no such model >&2; exit 3")
    client = parties.client()
    run = client.start("a")["run_id"]
    nowhere = client.start("a", project_dir="/nowhere/at/all")["run_id"]

    until(lambda: client.status(run) == client.status(nowhere) == "failed", "the runs to fail")
    assert client.http.get(f"/runs/{run}").json()["error"] == "no such model"
    assert "No such file" in client.http.get(f"/runs/{nowhere}").json()["error"]


def test_one_that_is_told_to_end_hands_back_what_it_runs(parties: Parties, start: Start, tmp_path: Path) -> None:
    runner = start("sh", "-c", FAMILY.format(folder=tmp_path))
    client = parties.client()
    run = client.start("a")["run_id"]
    until(lambda: (tmp_path / "self").exists() and (tmp_path / "self").read_text().strip(), "the process")
    pids = [int((tmp_path / name).read_text()) for name in ("child", "self")]

    runner.terminate()

    assert runner.wait(timeout=20) == 0
    assert client.http.get(f"/runs/{run}").json()["state"] == "pending"
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), "the processes to be gone")
