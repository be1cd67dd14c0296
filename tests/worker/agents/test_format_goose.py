"""goose's language: each of its traps."""

from __future__ import annotations

from typing import Any

import pytest
from support.agent_output import read

from agentq.coordinator.model.agent_events import (
    FileChangeEvent,
    ModelTurnEvent,
    TextEvent,
    ToolCallEvent,
    ToolDeniedEvent,
    ToolResultEvent,
)
from agentq.worker.agents.verdicts import VerdictKind as Kind

DONE = {"type": "complete", "total_tokens": 120}


def message(*parts: dict[str, Any], role: str = "assistant") -> dict[str, Any]:
    return {"type": "message", "message": {"id": None, "role": role, "content": list(parts)}}


def says(words: str) -> dict[str, Any]:
    return message({"type": "text", "text": words})


def uses(name: str, **arguments: Any) -> dict[str, Any]:
    call = {"status": "success", "value": {"name": name, "arguments": arguments}}
    return message({"type": "toolRequest", "id": "t", "toolCall": call})


def gives(text: str, status: str = "success") -> dict[str, Any]:
    result = {"status": status, "value": [{"type": "text", "text": text}]}
    return message({"type": "toolResponse", "id": "t", "toolResult": result}, role="user")


def test_a_turn_with_a_tool_is_told_in_whole_messages() -> None:
    writes = uses("developer__text_editor", command="write", path="a.txt")
    reading = read("goose", [says("Let "), says("me."), writes, gives("ok"), says("Done."), DONE])

    assert reading.types == ["turn", "text", "tool", "tool_end", "file", "turn", "text", "spent", "result"]
    assert [said.text for said in reading.of(TextEvent)] == ["Let me.", "Done."]
    assert reading.facts.text == "Done."
    assert reading.facts.spent.input_tokens == 120
    assert len(reading.of(ModelTurnEvent)) == 2
    assert reading.judged(0).kind is Kind.OK


@pytest.mark.parametrize("lines", [[DONE], [says("  "), DONE], [says("Let me."), uses("ls"), gives("a"), DONE]])
def test_an_end_with_0_and_without_an_answer_is_no_result(lines: list[dict[str, Any]]) -> None:
    verdict = read("goose", lines).judged(0)

    assert verdict.kind is Kind.NO_RESULT
    assert verdict.error == "it ended and has said nothing"


def test_an_end_without_its_last_word_is_no_result() -> None:
    assert read("goose", [says("Done.")]).judged(0).kind is Kind.NO_RESULT


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ("Rate limit exceeded: rate_limit_error", Kind.THROTTLED),
        ("Authentication error: invalid_api_key", Kind.AUTH),
        ("Context length exceeded: context_length_exceeded", Kind.CONTEXT),
        ("Something else", Kind.AGENT_ERROR),
    ],
)
def test_an_error_is_not_made_good_by_the_end(error: str, kind: Kind) -> None:
    verdict = read("goose", [says("Hm"), {"type": "error", "error": error}, DONE]).judged(0)

    assert verdict.kind is kind
    assert verdict.error == error


def test_a_tool_that_was_declined_is_a_denial() -> None:
    reading = read("goose", [uses("shell", command="rm x"), gives("The user has declined to run this tool.", "error")])

    assert reading.of(ToolCallEvent)[0].about == "rm x"
    assert [denied.tool for denied in reading.of(ToolDeniedEvent)] == ["shell"]
    assert reading.of(ToolResultEvent)[0].ok is False


def test_looking_at_a_file_changes_nothing() -> None:
    reading = read("goose", [uses("developer__text_editor", command="view", path="a.txt"), gives("x")])

    assert reading.of(FileChangeEvent) == []


def test_a_session_that_it_does_not_know_is_called_so() -> None:
    assert read("goose", [], ["Error: No session found with name 'x'"]).judged(1).kind is Kind.NO_SESSION
