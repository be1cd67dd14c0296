"""The fake agent for the Agent Client Protocol, driven with plain JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


class Client:
    """A client of the agent."""

    def __init__(self, folder: Path, *flags: str) -> None:
        self.folder = folder
        self.updates: list[dict[str, Any]] = []
        self.asked: list[dict[str, Any]] = []
        self.option = "allow"
        self.process = subprocess.Popen(
            [sys.executable, "-m", "agentq.testing.fake_agent", "--as", "acp", *flags],
            cwd=folder, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env={**os.environ, "CLAUDE_CONFIG_DIR": str(folder / "claude")},
        )  # fmt: skip
        self._number = 0

    def send(self, **message: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        self.process.stdin.flush()

    def receive(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        return dict(json.loads(self.process.stdout.readline()))

    def begin(self, method: str, **params: object) -> None:
        self._number += 1
        self.send(id=self._number, method=method, params=params)

    def call(self, method: str, **params: object) -> dict[str, Any]:
        self.begin(method, **params)
        return self.answer()

    def answer(self) -> dict[str, Any]:
        """What comes before it is written down, and allowed."""
        while True:
            message = self.receive()
            if "method" not in message:
                return message
            if message["method"] == "session/update":
                self.updates.append(message["params"]["update"])
            else:
                self.asked.append(message["params"])
                self.send(id=message["id"], result={"outcome": {"outcome": "selected", "optionId": self.option}})

    def session(self) -> str:
        self.call("initialize", protocolVersion=1, clientCapabilities={})
        return str(self.call("session/new", cwd=str(self.folder), mcpServers=[])["result"]["sessionId"])

    def prompt(self, session: str, text: str) -> dict[str, Any]:
        return self.call("session/prompt", sessionId=session, prompt=[{"type": "text", "text": text}])

    def said(self) -> list[str]:
        return [each["content"]["text"] for each in self.updates if each["sessionUpdate"] == "agent_message_chunk"]

    def close(self) -> int:
        self.process.communicate(timeout=20)
        return self.process.returncode


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    client = Client(tmp_path)
    yield client
    assert client.close() == 0


def test_a_turn_asks_for_permission_uses_its_tools_and_ends(client: Client) -> None:
    told = client.prompt(client.session(), "WRITE a.txt text\nRUN cat a.txt\nCOST 0.5\nfinished")

    assert told["result"] == {"stopReason": "end_turn"}
    assert (client.folder / "a.txt").read_text() == "text\n"
    assert [asked["toolCall"]["kind"] for asked in client.asked] == ["edit", "execute"]
    assert [each["status"] for each in client.updates if each["sessionUpdate"] == "tool_call_update"] == [
        "completed", "completed"
    ]  # fmt: skip
    assert client.updates[-1]["cost"] == {"amount": 0.5, "currency": "USD"}


def test_what_is_rejected_is_not_done(client: Client) -> None:
    client.option = "reject"

    told = client.prompt(client.session(), "WRITE a.txt text")

    assert told["result"] == {"stopReason": "end_turn"}
    assert not (client.folder / "a.txt").exists()


def test_a_turn_is_cancelled_in_the_midst_of_a_tool(client: Client) -> None:
    session = client.session()
    client.begin("session/prompt", sessionId=session, prompt=[{"type": "text", "text": "RUN sleep 600"}])
    while not client.asked:
        message = client.receive()
        if "id" in message:
            client.asked.append(message)
            client.send(id=message["id"], result={"outcome": {"outcome": "selected", "optionId": "allow"}})
    client.send(method="session/cancel", params={"sessionId": session})

    assert client.answer()["result"] == {"stopReason": "cancelled"}
    assert client.prompt(session, "REPORT prompts")["result"] == {"stopReason": "end_turn"}
    assert client.said() == ["2"]


def test_a_session_is_loaded_by_another_process_and_replayed(client: Client, tmp_path: Path) -> None:
    session = client.session()
    client.prompt(session, "hello")
    other = Client(tmp_path)
    other.call("initialize", protocolVersion=1)

    loaded = other.call("session/load", sessionId=session, cwd=str(tmp_path), mcpServers=[])

    assert "error" not in loaded
    assert [each["sessionUpdate"] for each in other.updates] == ["user_message_chunk", "agent_message_chunk"]
    other.prompt(session, "REPORT prompts")
    assert other.said() == ["hello", "2"]
    assert other.close() == 0


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("REFUSE", {"result": {"stopReason": "refusal"}}),
        ("CONTEXT", {"result": {"stopReason": "max_tokens"}}),
        ("AUTH", {"error": {"code": -32000, "message": "Authentication required"}}),
        ("FAIL oh", {"error": {"code": -32603, "message": "Internal error: oh"}}),
    ],
)
def test_it_ends_in_the_words_of_the_protocol(client: Client, prompt: str, expected: dict[str, Any]) -> None:
    told = client.prompt(client.session(), prompt)

    assert expected.items() <= told.items()


def test_an_unknown_session_and_an_unknown_method_are_errors(client: Client) -> None:
    assert client.call("session/load", sessionId="none", cwd="/", mcpServers=[])["error"]["code"] == -32002
    assert client.call("session/prompt", sessionId="none", prompt=[])["error"]["code"] == -32602
    assert client.call("session/dance")["error"]["code"] == -32601


def test_a_mute_one_answers_nothing(tmp_path: Path) -> None:
    mute = Client(tmp_path, "--mute")
    mute.begin("initialize", protocolVersion=1)

    assert mute.process.communicate(timeout=20)[0] == ""
