"""`agentq webhook`, with a server that delivers."""

from __future__ import annotations

import os
import subprocess
import sys

from receiver import AT_HOME, receiving
from servers import Server
from serving import MakeServing, Serving


def said(serving: Serving, *words: str) -> tuple[int, str, str]:
    argv = [sys.executable, "-m", "agentq.cli.main", *words]
    done = subprocess.run(
        argv, env={**os.environ, **serving.settings.to_environment()}, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout, done.stderr


def test_a_person_adds_tests_lists_and_delivers_again(valkey: Server, make_serving: MakeServing) -> None:
    serving = make_serving(valkey, environment=AT_HOME)
    with receiving() as receiver:
        code, out, err = said(serving, "webhook", "add", receiver.url, "--name", "hook", "--event", "failed")
        secret = out.split()[1]
        assert (code, "told of event failed" in err) == (0, True)
        receiver.answers = [204, 301]
        code, out, _ = said(serving, "webhook", "test", "hook")
        message = out.split()[0]
        assert (code, out) == (0, f"{message}  204 taken\n")
        code, out, _ = said(serving, "webhook", "redeliver", "hook", message)
        assert (code, out) == (1, f"{message}  not taken: it answered 301, and redirects are not followed\n")

        assert receiver.told() == [message, message]
        assert receiver.messages(secret)[0].type == "webhook.test"
        _, out, _ = said(serving, "webhook", "ls")
        assert "hook\tactive" in out
        assert secret not in out
        _, out, _ = said(serving, "webhook", "deliveries", "hook")
        assert [line.split("\t")[3] for line in out.splitlines()][::-1] == ["204 taken", said_of_301()]
    code, _, err = said(serving, "webhook", "add", "https://example.com/", "--event", "complete")
    assert (code, "Did you mean completed?" in err) == (2, True)
    code, _, err = said(serving, "webhook", "rm", "nobody")
    assert (code, err) == (2, "agentq: There is no webhook nobody; `agentq webhook ls` shows those that there are.\n")
    code, _, err = said(serving, "--url", serving.url, "ls")
    assert (code, "everything else needs the Redis behind it" in err) == (2, True)


def said_of_301() -> str:
    return "not taken: it answered 301, and redirects are not followed"
