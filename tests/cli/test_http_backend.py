"""What the common cases of commands do not cover: a worker behind a coordinator, commands that need Redis itself, and
commands in an agent's run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from cli.conftest import Cli, sentence
from support.crew import Crew
from support.http_servers import OUTLASTS, Serving
from support.servers import Server

SCRIPT = "echo out; echo err >&2; exit 3"
RUNS = '{"argv": ["true"], "queue": "remote"}\n{"argv": ["false"], "queue": "remote"}\n'
RUN = "run_01k9zq3c5007m2x4c8r1tnq"
ELSEWHERE = "the test has an address of its own"
NEEDS_REDIS = (["reap"], ["doctor"], ["up"], ["rq", "export"], ["serve"])
REFUSED_TO_AGENTS = (
    ["ls"],
    ["why", RUN],
    ["signal", RUN, "go"],
    ["approve", RUN],
    ["deny", RUN],
    ["retry", RUN],
    ["cancel", "--queue", "default", "--yes"],
    ["dead", "ls"],
    ["dead", "retry", RUN],
    ["dead", "purge", RUN, "--yes"],
    ["events"],
    ["logs", "--full", RUN],
    ["queue", "ls"],
    ["limit", "ls"],
    ["schedule", "ls"],
    ["token", "ls"],
    ["webhook", "ls"],
    ["worker", "ls"],
    ["plan", "ls"],
    ["session", "ls"],
    ["reap"],
    ["doctor"],
)


@pytest.mark.redis_only(ELSEWHERE)
def test_runs_are_submitted_followed_waited_for_and_cancelled_by_a_coordinator(
    cli: Cli, serving: Serving, valkey: Server, make_crew: Callable[..., Crew], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTQ_URL", serving.url)
    make_crew(valkey, namespace=serving.settings.namespace, **OUTLASTS).worker(queue="remote", slots=2)

    followed = cli("submit", "--queue", "remote", "--follow", "--", "sh", "-c", SCRIPT)
    run = followed.err.split()[1]
    many = cli("submit", "--from-jsonl", "-", "--wait", stdin=RUNS)
    endless = cli("submit", "--queue", "remote", "--", "sleep", "1000").out.strip()
    late = cli("wait", endless, "--timeout", "1ms")

    assert (followed.code, followed.lines, followed.err.splitlines()[1]) == (1, ["out"], "err")
    assert followed.err.splitlines()[-1] == f"agentq: {run} failed, exit 3."
    assert (many.code, [line.split()[2] for line in many.err.splitlines()]) == (1, ["completed,", "failed,"])
    assert len(many.lines) == 2
    assert cli("logs", run).out == "out\n"
    assert cli("show", run).lines[0] == f"{run}  failed, exit 3"
    assert (late.code, "has not ended in time" in late.err) == (124, True)
    assert cli("cancel", endless).code == 0
    assert cli("wait", endless).lines == [f"{endless}\tcancelled"]
    assert serving.records.get(endless).state == "cancelled"


@pytest.mark.redis_only(ELSEWHERE)
@pytest.mark.parametrize("argv", NEEDS_REDIS, ids=" ".join)
def test_a_command_that_needs_redis_itself_says_so(cli: Cli, argv: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTQ_URL", "https://agentq.example.com")

    answer = cli(*argv)

    refusal = f"`agentq {' '.join(argv)}` works on Redis itself, and https://agentq.example.com is a coordinator; "
    assert sentence(answer).startswith(refusal)
    assert answer.code == 2


@pytest.mark.redis_only(ELSEWHERE)
def test_over_http_the_coordinator_knows_its_namespace(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTQ_URL", "https://agentq.example.com")

    assert "leave --namespace out" in sentence(cli("--namespace", "other", "ls"))


@pytest.mark.redis_only(ELSEWHERE)
@pytest.mark.parametrize("argv", REFUSED_TO_AGENTS, ids=" ".join)
def test_in_an_agents_run_a_command_for_people_is_refused(
    cli: Cli, argv: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("AGENTQ_URL")
    for name, value in (("AGENT_SOCKET", str(tmp_path / "socket")), ("TOKEN", "secret"), ("RUN_ID", RUN)):
        monkeypatch.setenv(f"AGENTQ_{name}", value)

    answer = cli(*argv)

    assert sentence(answer).startswith("This is for people and programs that know the server, not for an agent")
    assert answer.code == 4


@pytest.mark.redis_only(ELSEWHERE)
def test_in_an_agents_run_a_run_without_a_parent_is_refused(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("AGENTQ_URL")
    for name, value in (("AGENT_SOCKET", str(tmp_path / "socket")), ("TOKEN", "secret"), ("RUN_ID", RUN)):
        monkeypatch.setenv(f"AGENTQ_{name}", value)

    assert "only its children can be submitted; add --child" in sentence(cli("submit", "--", "true"))
    assert "name the run by its whole id" in sentence(cli("show"))
    assert "does not answer at its socket" in sentence(cli("show", RUN))
