"""The fake models, with requests like those of agents. Real agents are in `tests/agents`."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from support.generated_docs import ROOT
from support.servers import until

from agentq.testing.fake_models import FakeModelServer
from agentq.testing.fake_models.scenarios import SCENARIOS


@pytest.fixture
def models() -> Iterator[FakeModelServer]:
    with FakeModelServer() as models:
        yield models


def post(models: FakeModelServer, path: str, body: dict[str, Any]) -> str:
    asked = urllib.request.Request(models.url + path, json.dumps(body).encode(), {"x-api-key": "k"})
    with urllib.request.urlopen(asked, timeout=20) as answer:
        return str(answer.read().decode())


def messages(prompt: str, *after: dict[str, Any], **fields: object) -> dict[str, Any]:
    tools = [{"name": "Write"}, {"name": "Bash"}]
    return {"model": "m", "tools": tools, "messages": [{"role": "user", "content": prompt}, *after], **fields}


def refused(models: FakeModelServer, prompt: str) -> tuple[int, dict[str, Any], dict[str, str]]:
    with pytest.raises(urllib.error.HTTPError) as error:
        post(models, "/v1/messages", messages(prompt))
    with error.value as answer:
        return answer.code, json.loads(answer.read()), dict(answer.headers)


def test_it_says_which_prompt_of_the_conversation_it_has_read(models: FakeModelServer) -> None:
    more = ({"role": "assistant", "content": "hm"}, {"role": "user", "content": "and now?"})

    assert "Prompt 1 was: hello" in post(models, "/v1/messages", messages("hello"))
    assert "Prompt 2 was: and now?" in post(models, "/v1/messages", messages("hello", *more))
    assert [asked.prompt for asked in models.requests] == ["hello", "and now?"]
    assert models.requests[0].key == "k"


def test_it_uses_a_tool_and_then_says_so(models: FakeModelServer) -> None:
    told = json.loads(post(models, "/v1/messages", messages("SCN:tool a.txt", system="Working directory: /srv/x\n")))
    assert told["content"][0]["input"]["file_path"] == "/srv/x/a.txt"
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "ok"}]}

    after = json.loads(post(models, "/v1/messages", messages("SCN:tool a.txt", told, result)))

    assert after["content"][0]["text"] == "I wrote a.txt."


@pytest.mark.parametrize(
    ("path", "body", "expected"),
    [
        ("/v1/messages?beta=true", messages("SCN:text one two", stream=True), '"text": " two"'),
        ("/v1/responses", {"input": "SCN:text one two", "stream": True}, '"type": "response.completed"'),
        ("/v1/responses", {"input": "SCN:text one two"}, '"text": "one two"'),
        ("/v1/chat/completions", messages("SCN:text one two", tools=[], stream=True), "data: [DONE]"),
        ("/v1/chat/completions", messages("SCN:text one two", tools=[]), '"content": "one two"'),
        (
            "/v1beta/models/m:streamGenerateContent?alt=sse",
            {"contents": [{"role": "user", "parts": [{"text": "SCN:text one two"}]}]},
            '"finishReason": "STOP"',
        ),
    ],
)
def test_every_dialect_is_answered_in_its_own(
    models: FakeModelServer, path: str, body: dict[str, Any], expected: str
) -> None:
    assert expected in post(models, path, body)
    assert models.requests[0].scenario == "text"


@pytest.mark.parametrize(
    ("word", "status", "kind"),
    [
        ("429", 429, "rate_limit_error"),
        ("529", 529, "overloaded_error"),
        ("401", 401, "authentication_error"),
        ("credit", 400, "invalid_request_error"),
        ("quota", 429, "rate_limit_error"),
    ],
)
def test_it_refuses_as_the_service_does(models: FakeModelServer, word: str, status: int, kind: str) -> None:
    code, body, headers = refused(models, f"SCN:{word}")

    assert (code, body["error"]["type"]) == (status, kind)
    assert ("anthropic-ratelimit-unified-reset" in headers) == (word == "quota")


def test_it_lets_in_who_was_refused_often_enough(models: FakeModelServer) -> None:
    assert refused(models, "SCN:529 2")[0] == refused(models, "SCN:529 2")[0] == 529
    assert "I was let in after 2 refusals." in post(models, "/v1/messages", messages("SCN:529 2"))


def test_a_broken_answer_never_says_that_it_is_over(models: FakeModelServer) -> None:
    with pytest.raises(http.client.IncompleteRead):
        post(models, "/v1/messages", messages("SCN:cut", stream=True))


def test_who_hangs_is_let_go_when_it_stops() -> None:
    with FakeModelServer() as models:
        host = models.url.removeprefix("http://")
        connection = http.client.HTTPConnection(host, timeout=20)
        connection.request("POST", "/v1/messages", json.dumps(messages("SCN:hang")))
        until(lambda: models.requests, "the request to be taken")
    with pytest.raises(http.client.RemoteDisconnected):
        connection.getresponse()
    connection.close()


def test_every_scenario_is_in_the_readme() -> None:
    page = (ROOT / "coordinator/agentq/testing/fake_models/README.md").read_text(encoding="utf-8")

    assert [word for word in SCENARIOS if f"`SCN:{word}" not in page] == []


def test_it_answers_what_is_none_of_its_business(models: FakeModelServer) -> None:
    with urllib.request.urlopen(f"{models.url}/v1/models", timeout=20) as answer:
        assert json.loads(answer.read())["data"][0]["id"] == "stub-model"
    with pytest.raises(urllib.error.HTTPError) as error:
        post(models, "/v1/nothing", {})
    error.value.close()
    assert error.value.code == 404
