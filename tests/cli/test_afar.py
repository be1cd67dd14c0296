"""What can be done on the command line by whoever reaches no server but a coordinator."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from cli.conftest import Cli, sentence
from crew import Crew
from servers import Server
from serving import Serving

SCRIPT = "echo out; echo err >&2; exit 3"
RUNS = '{"argv": ["true"], "queue": "afar"}\n{"argv": ["false"], "queue": "afar"}\n'


@pytest.fixture
def afar(
    cli: Cli, serving: Serving, valkey: Server, make_crew: Callable[..., Crew], monkeypatch: pytest.MonkeyPatch
) -> Cli:
    """Calls `agentq` with the address of a coordinator, behind which somebody works."""
    monkeypatch.setenv("AGENTQ_URL", serving.url)
    make_crew(valkey, namespace=serving.settings.namespace).worker(queue="afar", slots=2)
    return cli


def test_runs_are_submitted_followed_waited_for_and_cancelled_by_a_coordinator(afar: Cli, serving: Serving) -> None:
    followed = afar("submit", "--queue", "afar", "--follow", "--", "sh", "-c", SCRIPT)
    run = followed.lines[-1].split()[0]
    many = afar("submit", "--from-jsonl", "-", "--wait", stdin=RUNS)
    endless = afar("submit", "--queue", "afar", "--", "sleep", "1000").out.strip()
    late = afar("wait", endless, "--timeout", "1ms")

    assert (followed.code, followed.lines[0], followed.err.splitlines()[-1]) == (1, "out", "err")
    assert (many.code, [line.split()[1] for line in many.lines[2:]]) == (1, ["completed", "failed"])
    assert afar("logs", run).out == "out\n"
    assert afar("show", run).lines[0] == f"{run}  failed, exit 3"
    assert (late.code, "has not ended in time" in late.err) == (124, True)
    assert afar("cancel", endless).code == 0
    assert afar("wait", endless).lines == [f"{endless}  cancelled"]
    assert serving.records.get(endless).state == "cancelled"


def test_what_cannot_be_done_there_is_refused(cli: Cli, serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTQ_URL", serving.url)

    assert "everything else needs the Redis behind it" in sentence(cli("ls"))
    assert "is not the id of a run" in sentence(cli("wait", "abc"))
    assert "for those who reach its server" in sentence(cli("logs", "--full", serving.submit()))
    monkeypatch.setenv("AGENTQ_TOKEN", "nonsense")
    assert cli("submit", "--", "true").code == 4
