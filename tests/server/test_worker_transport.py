"""Workers that reach only a coordinator do all that others do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from coordinator.test_topologies import Cluster
from support.crew import Crew
from support.http_servers import MakeServing, Serving
from support.leases import end_lease
from support.servers import Server, until

from agentq.cli.main import main
from agentq.coordinator.model.ids import partition_of
from agentq.coordinator.model.spec import RunSpec
from agentq.coordinator.runs.logs import Logs
from agentq.coordinator.sessions.verbs import Sessions
from agentq.coordinator.workers.lease import order_drain

MakeCrew = Callable[..., Crew]
GIT = {
    "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b",
    "GIT_CONFIG_GLOBAL": "/dev/null",
}  # fmt: skip
FULL = {"permissions": "full"}
AGENTQ = f"{sys.executable} -m agentq.cli.main"


@pytest.fixture
def crew(valkey: Server, serving: Serving, make_crew: MakeCrew) -> Crew:
    """In the namespace of the coordinator."""
    return make_crew(valkey, namespace=serving.settings.namespace)


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=folder, env={**os.environ, **GIT}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def log_of(crew: Crew, run: str) -> str:
    return "".join(entry.text for entry in Logs(crew.queue.store).read(run) if entry.stream == "out")


def test_a_worker_without_redis_executes_commands_and_functions_and_says_all_of_them(
    serving: Serving, crew: Crew
) -> None:
    tests = str(Path(__file__).parent.parent)
    # A proxy for the rest of the world is not asked about this machine.
    around = {"PYTHONPATH": tests, "HTTP_PROXY": "http://127.0.0.1:9", "HTTPS_PROXY": "http://127.0.0.1:9"}
    worker = crew.worker_through(serving.url, around, slots=4, queue="all")
    commands = [crew.submit("echo out; echo err >&2", queue="all") for _ in range(20)]
    failing = crew.submit("exit 3", queue="all", retry={"failures": 1, "delay_ms": 1})
    functions = [
        crew.queue.submit(
            RunSpec.checked(kind="function", function="support.functions:added", args=[each, 1], queue="all")
        ).id
        for each in range(100)
    ]

    crew.wait([*commands, failing, *functions])

    assert {crew.state(run) for run in [*commands, *functions]} == {"completed"}
    assert crew.effects("end") == dict.fromkeys(commands, 1)
    assert log_of(crew, commands[0]) == "out\n"
    results = [crew.records.get(run).outcome for run in functions]
    assert [outcome.result for outcome in results if outcome] == [each + 1 for each in range(100)]
    assert [attempt.outcome.exit_code for attempt in crew.records.get(failing).attempts if attempt.outcome] == [3, 3]
    environment = Path(f"/proc/{worker.pid}/environ").read_bytes()
    assert b"redis:" not in environment
    assert crew.server.url.encode() not in environment
    crew.check()


@pytest.mark.full("takes 1 s")
def test_agents_work_through_a_coordinator_with_their_conversations_and_their_children(
    serving: Serving, crew: Crew, folder: Path
) -> None:
    own = {"CLAUDE_CONFIG_DIR": str(folder / "agents"), "XDG_CONFIG_HOME": str(folder / "config")}
    crew.worker_through(serving.url, own, slots=2)
    Sessions(crew.queue.store).new("talk", agent="standin", cwd=str(folder))

    def ask(*lines: str, **fields: object) -> str:
        spec = {"kind": "agent", "agent": "standin", "prompt": "\n".join(lines), "cwd": str(folder), **fields}
        return crew.queue.submit(RunSpec.checked(**spec)).id

    first, second = ask("SAY hello", session="talk"), ask("REPORT prompts", "COST 0.2", session="talk")
    crew.queue.signal(second, "hint", "count them")
    parent = ask(
        f"RUN {AGENTQ} submit --child --wait -- sh -c 'echo from the child' > told", turn=FULL, may_submit=("command",)
    )
    crew.wait([first, second, parent])

    assert {crew.state(run) for run in (first, second, parent)} == {"completed"}
    assert "2" in "".join(entry.text for entry in Logs(crew.queue.store).read(second) if entry.stream == "event")
    assert crew.records.get(second).spending is not None
    child = crew.records.get((folder / "told").read_text().split()[0])
    assert (child.spec.parent, child.state) == (parent, "completed")
    assert log_of(crew, child.id) == "from the child\n"


def test_a_cancelled_run_is_stopped_and_a_drained_worker_hands_back_what_it_holds(serving: Serving, crew: Crew) -> None:
    worker = crew.worker_through(serving.url, slots=2, queue="stop", drain_grace="0s")
    run, other = (crew.submit("sleep 60", queue="stop", stop_grace_ms=100) for _ in range(2))
    until(lambda: crew.effects("begin").total() == 2, "both to begin")

    crew.queue.cancel(run)
    crew.wait([run])
    order_drain(crew.queue.store, 0, crew.name_of(worker), "a test")

    assert worker.wait(20) == 0
    assert crew.state(run) == "cancelled"
    assert (crew.state(other), crew.records.get(other).crashes) == ("pending", 0)
    assert crew.name_of(worker) == ""
    crew.queue.cancel(other)


@pytest.mark.full("takes 3 s")
def test_a_worker_that_is_told_of_other_queues_serves_them(serving: Serving, crew: Crew, folder: Path) -> None:
    settings = folder / "config" / "agentq" / "config.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text('[worker]\nqueues = ["before"]\n')
    worker = crew.worker_through(serving.url, {"XDG_CONFIG_HOME": str(folder / "config")}, slots=2)
    goes_on, waits = crew.submit("sleep 1", queue="before"), crew.submit("true", queue="later")
    until(lambda: crew.effects("begin").total() == 1, "one to begin")

    settings.write_text('[worker]\nqueues = ["later"]\n')
    worker.send_signal(signal.SIGHUP)
    crew.wait([waits, goes_on])
    worker.terminate()

    assert worker.wait(20) == 0
    assert {crew.state(run) for run in (goes_on, waits)} == {"completed"}


@pytest.mark.full("takes 4 s")
def test_a_second_signal_does_not_wait(serving: Serving, crew: Crew) -> None:
    worker = crew.worker_through(serving.url, queue="signals", drain_grace="60s")
    run = crew.submit("sleep 60", queue="signals", stop_grace_ms=100)
    until(lambda: crew.effects("begin").total() == 1, "it to begin")

    worker.send_signal(signal.SIGTERM)
    until(lambda: crew.records.workers()[0].state == "draining", "it to drain")
    worker.send_signal(signal.SIGTERM)

    assert worker.wait(20) == 0
    assert crew.state(run) == "pending"
    crew.queue.cancel(run)


@pytest.mark.full("takes 4 s")
def test_a_killed_workers_runs_go_on_with_another_when_its_lease_is_over(serving: Serving, crew: Crew) -> None:
    first = crew.worker_through(serving.url, slots=2, queue="lost")
    name = crew.name_of(first)
    runs = [crew.submit("sleep 0.5", queue="lost") for _ in range(2)]
    until(lambda: crew.effects("begin").total() == 2, "both to begin")

    first.kill()
    elsewhere = {"AGENTQ_HOME": str(crew.folder / "elsewhere")}
    crew.worker_through(serving.url, elsewhere, slots=2, queue="lost")
    until(lambda: end_lease(serving.store, name) and crew.effects("begin").total() == 4, "both to begin again")
    crew.wait(runs)

    assert {crew.records.get(run).crashes for run in runs} == {1}
    crew.check()


@pytest.mark.full("takes 4 s")
def test_p3_the_runs_of_a_killed_worker_go_on_when_the_next_one_starts_on_its_host(
    serving: Serving, crew: Crew, folder: Path
) -> None:
    """Its lease lasts for half a minute more. One that leaves properly leaves nothing to take over."""
    gate = folder / "gate"
    first = crew.worker_through(serving.url, queue="killed")
    name = crew.name_of(first)
    run = crew.submit(f"until [ -e {gate} ]; do sleep 0.05; done", queue="killed")
    until(lambda: crew.effects("begin")[run] == 1, "it to begin")
    notes = list((crew.folder / "home" / "connected").rglob("*.json"))
    first.kill()
    first.wait()

    second = crew.worker_through(serving.url, queue="killed")
    until(lambda: crew.effects("begin")[run] == 2, "it to begin again")

    assert serving.store.connection.command("EXISTS", serving.store.key(partition_of(run), "worker_lease", name)) == 0
    gate.touch()
    crew.wait([run])
    lost, _ = crew.records.get(run).attempts
    assert lost.outcome is not None
    assert lost.outcome.error == "its worker's process is dead"
    second.terminate()
    assert second.wait(30) == 0
    assert [note.name for note in notes] == [f"{name}.json"]
    assert not list((crew.folder / "home" / "connected").rglob("*.json"))


@pytest.mark.full("takes 7 s")
def test_whoever_started_a_worker_is_told_when_its_coordinator_is_away_and_when_it_is_back(
    make_serving: MakeServing, make_crew: MakeCrew, valkey: Server, capfd: pytest.CaptureFixture[str]
) -> None:
    serving = make_serving(valkey)
    crew = make_crew(valkey, namespace=serving.settings.namespace)
    crew.worker_through(serving.url)
    crew.wait([crew.submit()])
    said: list[str] = []

    def heard(sentence: str) -> bool:
        said.append(capfd.readouterr().err)
        return sentence in "".join(said)

    serving.stop_process()
    until(lambda: heard("What runs here goes on meanwhile."), "it to be told")
    serving.start()
    until(lambda: heard("agentq: the server answers again.\n"), "it to be told, too")
    crew.close()


def test_a_run_in_a_worktree_is_merged_and_its_outcome_stands_in_the_next_one(
    serving: Serving, crew: Crew, folder: Path
) -> None:
    repository = folder / "repository"
    git(folder, "init", "-q", "-b", "main", str(repository))
    (repository / "begun").write_text("")
    git(repository, "add", ".")
    git(repository, "commit", "-qm", "Begun")
    crew.worker_through(serving.url, GIT, queue="trees", slots=2)
    work = {"repository": str(repository), "base": "main", "target": "work"}
    first = crew.queue.submit(
        RunSpec.checked(kind="command", argv=["sh", "-c", "echo made > made"], workspace=work, queue="trees")
    ).id
    then = {"argv": ["echo", "{{ tasks.first.branch }}"], "inputs": {"first": first}, "after": [first]}
    second = crew.queue.submit(RunSpec.checked(kind="command", queue="trees", **then)).id
    crew.wait([second])

    outcome = crew.records.get(first).outcome
    assert outcome is not None
    assert outcome.work is not None, outcome
    assert (outcome.work.merged, outcome.work.files) == (True, 1)
    assert git(repository, "show", "work:made") == "made"
    assert log_of(crew, second) == f"{outcome.work.branch}\n"


@pytest.mark.full("takes 4 s")
def test_partitions_on_several_servers_are_watched_together(
    folder: Path, make_serving: Callable[..., Serving], make_crew: MakeCrew
) -> None:
    """In a cluster no single read can wait for all of them: the first that ends, ends the others."""
    cluster = Cluster(folder / "cluster").start()
    try:
        serving = make_serving(cluster, partitions=3)
        crew = make_crew(cluster, namespace=serving.settings.namespace, partitions=3)
        worker = crew.worker_through(serving.url)
        runs = [crew.queue.submit(RunSpec.checked(kind="command", argv=["true"], plan=str(at))).id for at in range(12)]
        crew.wait(runs)
        crew.close()

        assert {crew.state(run) for run in runs} == {"completed"}
        assert len({partition_of(run) for run in runs}) == 3
        assert worker.returncode == 0
    finally:
        cluster.stop()


@pytest.mark.needs("openssl")
def test_a_certificate_that_is_not_known_is_not_talked_to(
    valkey: Server, make_serving: Callable[..., Serving], make_crew: MakeCrew, folder: Path
) -> None:
    made = "openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1"
    subprocess.run([*made.split(), "-keyout", folder / "key", "-out", folder / "cert"], check=True, capture_output=True)
    serving = make_serving(valkey, "--tls-cert", str(folder / "cert"), "--tls-key", str(folder / "key"))
    crew = make_crew(valkey, namespace=serving.settings.namespace)

    crew.worker_through(serving.url, ca_file=folder / "cert")
    stranger = crew.begin_through(serving.url)
    run = crew.submit("true")
    crew.wait([run])

    assert stranger.wait(30) == 3
    assert crew.state(run) == "completed"


@pytest.mark.full("takes 1 s")
@pytest.mark.parametrize(
    ("connect", "more", "sentence"),
    [
        ("agentq.example", (), "--connect takes the address of a coordinator, such as https://agentq.example"),
        ("http://agentq.example", (), "would get the token unencrypted: use https://"),
        ("https://me:secret@agentq.example", (), "a token is for AGENTQ_WORKER_TOKEN or --token-file"),
        ("https://agentq.example", ("--rq", "default"), "--rq needs Redis itself"),
        ("https://agentq.example", ("--token-file", "/nowhere/token"), "The token in /nowhere/token cannot be read"),
        ("https://agentq.example", ("--ca-file", "/nowhere/ca"), "The certificates in /nowhere/ca cannot be read"),
        ("", ("--token-file", "x"), "--token-file means nothing without --connect"),
    ],
)
def test_wrong_words_are_refused_before_anything_is_tried(
    connect: str, more: tuple[str, ...], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(("worker", *(("--connect", connect) if connect else ()), *more))

    said = capsys.readouterr().err
    assert (code, sentence in said) == (2, True), said
    assert "secret" not in said


@pytest.mark.full("takes 2 s")
def test_a_coordinator_that_is_not_there_ends_a_worker_that_is_to_end_by_itself(fresh_home: dict[str, str]) -> None:
    argv = [sys.executable, "-m", "agentq.cli.main", "worker", "--burst", "--connect", "http://127.0.0.1:9"]
    done = subprocess.run(argv, env=fresh_home, capture_output=True, text=True)

    assert done.returncode == 3
    assert "The coordinator ws://127.0.0.1:9/worker cannot be reached" in done.stderr
