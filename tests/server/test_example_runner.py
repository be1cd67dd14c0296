"""`examples/runner.py`: what any runner needs, and how it must treat its processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from support.dialect_runner import Parties
from support.http_servers import Serving
from support.servers import Server, until

ROOT = Path(__file__).parent.parent.parent
LONG = "import sys; print('y' * 300_000); sys.stderr.write('x' * 1_000_000); print(sys.stdin.read().upper())"
FAMILY = "sleep 1000 & echo $! > {folder}/child; echo $$ > {folder}/self; sleep 1000"
Start = Callable[..., subprocess.Popen[bytes]]


@contextmanager
def runner_of(serving: Serving, *command: str, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """A runner with a command for its runs, once it is registered."""
    argv = [sys.executable, str(ROOT / "examples/runner.py"), serving.url, "--", *command]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, env={**os.environ, **environment}) as runner:
        assert runner.stdout is not None
        assert runner.stdout.readline().startswith(b"runner ")
        yield runner
        runner.kill()


@pytest.fixture
def start(serving: Serving, parties: Parties) -> Iterator[Start]:  # noqa: ARG001 - its runs go before
    """Starts runners with a command for their runs."""
    with ExitStack() as started:
        yield lambda *command: started.enter_context(runner_of(serving, *command))


def family(folder: Path) -> list[int]:
    """The processes of a run, once they are there."""
    until(lambda: (folder / "self").exists() and (folder / "self").read_text().strip(), "the process")
    return [int((folder / name).read_text()) for name in ("child", "self")]


@pytest.mark.full("takes 2 s")
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


@pytest.mark.full("takes 2 s")
def test_a_stop_ends_what_its_process_has_started(parties: Parties, start: Start, tmp_path: Path) -> None:
    """Defect 15."""
    start("sh", "-c", FAMILY.format(folder=tmp_path))
    client = parties.client()
    run = client.start("a")["run_id"]
    pids = family(tmp_path)

    client.http.post(f"/runs/{run}/stop")

    until(lambda: client.status(run) == "stopped", "the run to be stopped")
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), "the processes to be gone")


@pytest.mark.full("takes 2 s")
def test_a_process_that_fails_fails_its_run_with_what_it_said(parties: Parties, start: Start) -> None:
    start("sh", "-c", "echo no such model >&2; exit 3")
    client = parties.client()
    run = client.start("a")["run_id"]
    nowhere = client.start("a", project_dir="/nowhere/at/all")["run_id"]

    until(lambda: client.status(run) == client.status(nowhere) == "failed", "the runs to fail")
    assert client.http.get(f"/runs/{run}").json()["error"] == "no such model"
    assert "No such file" in client.http.get(f"/runs/{nowhere}").json()["error"]


@pytest.mark.full("takes 2 s")
def test_one_that_is_told_to_end_hands_back_what_it_runs(parties: Parties, start: Start, tmp_path: Path) -> None:
    runner = start("sh", "-c", FAMILY.format(folder=tmp_path))
    client = parties.client()
    run = client.start("a")["run_id"]
    pids = family(tmp_path)

    runner.terminate()

    assert runner.wait(timeout=20) == 0
    assert client.http.get(f"/runs/{run}").json()["state"] == "pending"
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), "the processes to be gone")


@pytest.mark.full("takes 2 s")
def test_one_that_is_told_to_end_while_the_server_is_away_ends_its_processes(
    make_serving: Callable[..., Serving], valkey: Server, tmp_path: Path
) -> None:
    serving = make_serving(valkey, namespace=tmp_path.name)
    with runner_of(serving, "sh", "-c", FAMILY.format(folder=tmp_path)) as runner:
        serving.submit(kind="agent", agent="claude", prompt="hello", argv=())
        pids = family(tmp_path)
        serving.stop_process()

        runner.terminate()

        assert runner.wait(timeout=20) == 0
        until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), "the processes to be gone")


@pytest.mark.full("takes 2 s")
def test_one_whose_polls_are_not_answered_for_its_lease_ends_its_processes(
    make_serving: Callable[..., Serving], valkey: Server, tmp_path: Path
) -> None:
    serving = make_serving(valkey, namespace=tmp_path.name)
    command = ("sh", "-c", FAMILY.format(folder=tmp_path))
    with runner_of(serving, *command, RUNNER_HEARTBEAT_TIMEOUT="1") as runner:
        serving.submit(kind="agent", agent="claude", prompt="hello", argv=())
        pids = family(tmp_path)

        serving.stop_process()

        until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), "the processes to be gone")
        assert runner.poll() is None


def test_its_processes_know_their_session(parties: Parties, start: Start) -> None:
    start("sh", "-c", "echo $AGENTQ_SESSION $AGENT_SESSION_NAME $AGENT_SESSION_ID")
    client = parties.client()
    run = client.start("a")

    until(lambda: client.status(run["run_id"]) == "completed", "the run to end")
    session = run["session_id"]
    assert client.result(session).json()["result"] == f"{session} {session} {session}\n"
