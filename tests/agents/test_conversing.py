"""Conversations as people have them: typed on a command line, worked off by a real worker, remembered by the agent."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest
from support.agent_workers import Agents

from agentq.cli.main import main
from agentq.sdk import connect
from agentq.sdk.agent_events import ResultEvent, TextEvent, ToolCallEvent

Typed = Callable[..., tuple[int, str, str]]


@pytest.fixture
def typed(studio: Agents, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Typed:
    """Calls `agentq` beside the worker, in its folder; the exit code and what was printed."""
    monkeypatch.chdir(studio.folder)
    for name, value in studio.crew.settings.to_environment().items():
        monkeypatch.setenv(name, value)

    def call(*argv: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(argv)
        said = capsys.readouterr()
        return code, said.out, said.err

    return call


@pytest.mark.full("takes 2 s")
def test_a_conversation_goes_on_where_it_was_and_is_told_in_order(studio: Agents, typed: Typed) -> None:
    studio.worker()
    typed("session", "new", "chat", "--agent", "standin")

    first = typed("session", "send", "chat", "SAY hello\nCOST 0.1", "--follow")
    second = typed("session", "send", "chat", "REPORT prompts\nCOST 0.2", "--wait")

    assert (first[0], second[0]) == (0, 0)
    assert "● hello\n" in first[1]
    told = [line for line in typed("session", "log", "chat")[1].splitlines() if line[:1] in "●✓$"]
    assert [line for line in told if line] == ["● hello", "✓ done", "$0.10 · 1 turn", "● 2", "✓ done", "$0.20 · 1 turn"]
    shown = typed("session", "show", "chat")[1]
    assert "$0.30 · 2 turns" in shown
    assert str(studio.folder) in shown


@pytest.mark.full("takes 2 s")
def test_who_sends_to_a_busy_session_does_not_wait_and_is_told_so(studio: Agents, typed: Typed) -> None:
    studio.worker()
    typed("session", "new", "chat", "--agent", "standin")
    first = typed("session", "send", "chat", "SAY working\nHANG")[1].strip()
    studio.until_said(first, "working")

    code, second, told = typed("session", "send", "chat", "SAY me too")

    assert code == 0
    assert told == f"agentq: turn 2 of chat, after {first}.\n"
    assert studio.crew.state(second.strip()) == "blocked"
    assert typed("session", "close", "chat", "--cancel")[1] == "chat\tclosed\t1 turn is being stopped\n"
    assert studio.done(first).state == studio.done(second.strip()).state == "cancelled"


@pytest.mark.full("takes 2 s")
def test_a_fork_remembers_and_leaves_the_other_as_it_was(studio: Agents, typed: Typed) -> None:
    studio.worker(slots=2)
    typed("session", "new", "chat", "--agent", "standin")
    typed("session", "send", "chat", "SAY one", "--wait")
    typed("session", "fork", "chat", "other")

    typed("session", "send", "other", "REPORT prompts", "--wait")
    typed("session", "send", "other", "REPORT prompts", "--wait")
    typed("session", "send", "chat", "REPORT prompts", "--wait")

    assert [line for line in typed("session", "log", "other")[1].splitlines() if line.startswith("●")] == ["● 2", "● 3"]
    assert "● 2\n" in typed("session", "log", "chat")[1]


@pytest.mark.full("takes 2 s")
def test_an_agent_is_followed_live_from_another_terminal(studio: Agents, typed: Typed) -> None:
    studio.worker()
    run = studio.submit("SAY first", "RUN sh -c 'until [ -e go ]; do sleep 0.05; done; echo gone'", "SAY last")
    studio.until_said(run, "first")
    argv = [sys.executable, "-m", "agentq.cli.main", "logs", "-f", run]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as logs:
        assert logs.stdout is not None
        first = next(line for line in logs.stdout if line.startswith("●"))
        (studio.folder / "go").touch()
        rest = logs.stdout.readlines()

    assert (first, logs.returncode) == ("● first\n", 0)
    assert [line for line in rest if line[0] in "●✓" or "gone" in line][-3:] == [
        "  ↳ ok  gone\n",
        "● last\n",
        "✓ done\n",
    ]
    assert typed("wait", run)[0] == 0


def test_from_python_it_is_the_same(studio: Agents) -> None:
    studio.worker()
    settings = studio.crew.settings
    with connect(settings.url, namespace=settings.namespace) as client:
        session = client.session("chat", agent="standin", cwd=str(studio.folder))
        first = session.send("RUN echo hi\nSAY hello")
        second = session.send("REPORT prompts")

        kinds = [type(doing) for doing in first.agent_events(follow=True)]

        assert [each for each in kinds if each in (ToolCallEvent, TextEvent, ResultEvent)] == [
            ToolCallEvent,
            TextEvent,
            ResultEvent,
        ]
        assert [first.result(timeout=40), second.result(timeout=40)] == ["hello", "2"]
        assert session.record().spent.turns >= 2
