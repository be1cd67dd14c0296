"""What a file of a repository, and what a coordinator says, can do to whoever calls a command there: nothing."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from cli.conftest import Cli, sentence

from agentq.cli.connect import print_note
from agentq.coordinator.errors import AgentqError, Invalid
from agentq.sdk import connect

ESCAPES = "\x1b]0;pwned\x07\x1b[31mRED\x1b[0m"


class Listener:
    """An HTTP server that refuses everything, and keeps the headers of each request."""

    def __init__(self) -> None:
        self.headers: list[dict[str, str]] = []
        listener = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                listener.headers.append(dict(self.headers))
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                body = json.dumps({"status": 422, "detail": f"No. {ESCAPES}"}).encode()
                self.send_response(422)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST  # noqa: N815 - as it is called

            def log_message(self, *_: object) -> None:
                """Nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def listener() -> Iterator[Listener]:
    found = Listener()
    yield found
    found.close()


def test_a_token_does_not_go_to_the_address_that_a_repository_names(
    cli: Cli, here: Path, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "agentq.toml").write_text(f'url = "{listener.url}"\n')
    monkeypatch.setenv("AGENTQ_TOKEN", "aq_client_secret")
    own = here.parent / "home/.config/agentq"
    own.mkdir(parents=True)
    (own / "config.toml").write_text('url = "http://127.0.0.1:1"\n')
    monkeypatch.delenv("AGENTQ_URL")

    answer = cli("submit", "--", "make", "deploy")

    assert listener.headers == []
    assert "cannot be reached" in answer.err
    first, second, *_ = answer.err.splitlines()
    assert first == f"agentq: url in {here}/agentq.toml does not count; `agentq config` says why."
    assert second == f"agentq: the server is http://127.0.0.1:1, set in {own}/config.toml."


def test_config_shows_what_does_not_count_and_why(cli: Cli, here: Path) -> None:
    (here / "agentq.toml").write_text('home = "."\n[agents.claude]\ncommand = "./claude"\n')

    rows = [line.split("\t") for line in cli("config").lines][-2:]
    records = [json.loads(line) for line in cli("config", "--json").lines][-2:]

    assert [row[0] for row in rows] == ["home (ignored)", "agents (ignored)"]
    assert [record["ignored"] for record in records] == ["home", "agents"]
    assert {row[2] for row in rows} == {record["source"] for record in records} == {str(here / "agentq.toml")}
    assert {row[1] for row in rows} == {record["why"] for record in records}


def test_a_settings_file_is_named_before_or_after_the_command(cli: Cli, here: Path) -> None:
    (here / "named.toml").write_text("lease_ms = 60000\n")

    for words in (["--config", "named.toml", "config"], ["config", "--config", "named.toml"]):
        found = {line.split("\t")[0]: line.split("\t")[1:] for line in cli(*words).lines}
        assert found["lease_ms"] == ["60000", str(here / "named.toml")]
        assert "AGENTQ_CONFIG" not in os.environ


def test_the_refusal_of_a_coordinator_cannot_order_the_terminal_about(
    cli: Cli, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTQ_URL", listener.url)

    answer = cli("submit", "--", "true")

    assert "\\x1b]0;pwned\\x07\\x1b[31mRED" in sentence(answer)
    assert "\x1b" not in answer.err


def test_what_a_command_notes_cannot_order_the_terminal_about_either(capsys: pytest.CaptureFixture[str]) -> None:
    """As a worker does with what its coordinator says."""
    print_note(f"No. {ESCAPES}")

    assert capsys.readouterr().err == "agentq: No. \\x1b]0;pwned\\x07\\x1b[31mRED\\x1b[0m\n"


def test_a_token_does_not_go_to_another_host_unencrypted(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTQ_URL", "http://agentq.invalid:8765")
    monkeypatch.setenv("AGENTQ_TOKEN", "aq_client_secret")

    answer = cli("submit", "--", "true")

    assert answer.code == 2
    assert (
        "The token would go to agentq.invalid unencrypted: write https://, or set AGENTQ_PLAIN_HTTP=true" in answer.err
    )
    with pytest.raises(Invalid, match="unencrypted"):
        connect("http://agentq.invalid", token="aq_client_secret").run("run_1m7tc0cfv00kvpk4ybc4y7h").record()


def test_a_token_goes_unencrypted_to_this_machine_and_where_a_variable_allows_it(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = "run_1m7tc0cfv00kvpk4ybc4y7h"
    with pytest.raises(AgentqError, match="No"):
        connect(listener.url, token="aq_client_secret").run(run).record()
    assert listener.headers[0]["Authorization"] == "Bearer aq_client_secret"
    monkeypatch.setenv("AGENTQ_PLAIN_HTTP", "true")
    client = connect("http://agentq.invalid", token="aq_client_secret")

    assert client.backend is not None
