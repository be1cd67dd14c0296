"""`agentq webhook`, with a server that delivers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.http_servers import MakeServing
from support.servers import Server
from support.webhook_receiver import AT_HOME, receiving

from agentq.cli.main import main

Say = Callable[..., tuple[int, str, str]]


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Say:
    """Says a command, in this process; its exit code, and what it printed."""

    def said(*words: str) -> tuple[int, str, str]:
        code = main(list(words))
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return said


@pytest.mark.full("takes 5 s")
@pytest.mark.parametrize("backend", ["redis", "http"])
def test_a_person_adds_tests_lists_and_delivers_again(
    valkey: Server, make_serving: MakeServing, say: Say, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    serving = make_serving(valkey, environment=AT_HOME)
    if backend == "http":
        monkeypatch.setenv("AGENTQ_URL", serving.url)
    else:
        for name, value in serving.settings.to_environment().items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("AGENTQ_SERVER_WEBHOOK_HTTP", "true")
    with receiving() as receiver:
        code, out, err = say("webhook", "add", receiver.url, "--name", "hook", "--event", "failed")
        secret = out.split()[1]
        assert (code, "told of event failed" in err) == (0, True)
        receiver.answers = [204, 301]
        code, out, _ = say("webhook", "test", "hook")
        message = out.split()[0]
        assert (code, out) == (0, f"{message}\t204 taken\n")
        code, out, _ = say("webhook", "redeliver", "hook", message)
        assert (code, out) == (1, f"{message}\tnot taken: it answered 301, and redirects are not followed\n")

        assert receiver.told() == [message, message]
        assert receiver.messages(secret)[0].type == "webhook.test"
        _, out, _ = say("webhook", "ls")
        assert "hook\tactive" in out
        assert secret not in out
        _, out, _ = say("webhook", "deliveries", "hook")
        assert [line.split("\t")[3] for line in out.splitlines()][::-1] == ["204 taken", said_of_301()]
    code, _, err = say("webhook", "add", "https://example.com/", "--event", "complete")
    assert (code, "Did you mean completed?" in err) == (2, True)
    code, _, err = say("webhook", "rm", "nobody")
    assert (code, err) == (2, "agentq: There is no webhook nobody; `agentq webhook ls` shows those that there are.\n")


def said_of_301() -> str:
    return "not taken: it answered 301, and redirects are not followed"
