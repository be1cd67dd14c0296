"""What can be done on the command line by whoever reaches no server but a coordinator."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from cli.conftest import Cli, sentence
from support.crew import Crew
from support.http_servers import OUTLASTS, Serving
from support.servers import Server

SCRIPT = "echo out; echo err >&2; exit 3"
RUNS = '{"argv": ["true"], "queue": "afar"}\n{"argv": ["false"], "queue": "afar"}\n'


@pytest.fixture
def afar(
    cli: Cli, serving: Serving, valkey: Server, make_crew: Callable[..., Crew], monkeypatch: pytest.MonkeyPatch
) -> Cli:
    """Calls `agentq` with the address of a coordinator, behind which somebody works."""
    monkeypatch.setenv("AGENTQ_URL", serving.url)
    make_crew(valkey, namespace=serving.settings.namespace, **OUTLASTS).worker(queue="afar", slots=2)
    return cli


def test_runs_are_submitted_followed_waited_for_and_cancelled_by_a_coordinator(afar: Cli, serving: Serving) -> None:
    followed = afar("submit", "--queue", "afar", "--follow", "--", "sh", "-c", SCRIPT)
    run = followed.err.split()[1]
    many = afar("submit", "--from-jsonl", "-", "--wait", stdin=RUNS)
    endless = afar("submit", "--queue", "afar", "--", "sleep", "1000").out.strip()
    late = afar("wait", endless, "--timeout", "1ms")

    assert (followed.code, followed.lines, followed.err.splitlines()[1]) == (1, ["out"], "err")
    assert followed.err.splitlines()[-1] == f"agentq: {run} failed, exit 3."
    assert (many.code, [line.split()[2] for line in many.err.splitlines()]) == (1, ["completed,", "failed,"])
    assert len(many.lines) == 2
    assert afar("logs", run).out == "out\n"
    assert afar("show", run).lines[0] == f"{run}  failed, exit 3"
    assert (late.code, "has not ended in time" in late.err) == (124, True)
    assert afar("cancel", endless).code == 0
    assert afar("wait", endless).lines == [f"{endless}\tcancelled"]
    assert serving.records.get(endless).state == "cancelled"


def test_runs_are_selected_by_queue_state_and_label_and_cancelled_by_a_coordinator(
    cli: Cli, serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTQ_URL", serving.url)
    red = serving.submit(kind="command", argv=("true",), queue="many", labels={"team": "red"})
    blue = [serving.submit(kind="command", argv=("true",), queue="many", labels={"team": "blue"}) for _ in range(2)]

    shown = cli("cancel", "--queue", "many", "--state", "pending", "--dry-run")
    some = cli("cancel", "--queue", "many", "--label", "team=blue", "--yes")
    none = cli("cancel", "--queue", "nobody", "--yes")

    assert sorted(shown.lines) == sorted([red, *blue])
    assert (some.code, {serving.records.get(run).state for run in blue}) == (0, {"cancelled"})
    assert serving.records.get(red).state == "pending"
    assert "There are no such runs." in none.err
    serving.queue.cancel(red)


def test_a_limit_that_nobody_has_set_is_named_through_a_coordinator(
    cli: Cli, serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTQ_URL", serving.url)

    one = cli("submit", "--queue", "limited", "--limit", "repo:nope", "--", "true")
    many = cli(
        "submit", "--from-jsonl", "-", stdin='{"argv": ["true"], "queue": "limited", "limits": {"nope": 1}}\n' * 3
    )

    assert (
        one.err
        == "agentq: There is no limit repo:nope, so it limits nothing; `agentq limit set repo:nope 1` sets it.\n"
    )
    assert many.err.count("There is no limit nope") == 1
    for run in [*one.lines, *many.lines]:
        serving.queue.cancel(run)


@pytest.mark.full("takes 1 s")
def test_what_cannot_be_done_there_is_refused(cli: Cli, serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTQ_URL", serving.url)

    assert "everything else needs the Redis behind it" in sentence(cli("ls"))
    assert "There is no run 'abc'" in sentence(cli("wait", "abc"))
    assert "for those who reach its server" in sentence(cli("logs", "--full", serving.submit()))
    monkeypatch.setenv("AGENTQ_TOKEN", "nonsense")
    assert cli("submit", "--", "true").code == 4
