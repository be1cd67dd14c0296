"""Gemini CLI's language: each of its traps."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.agent_output import captured, read

from agentq.coordinator.model.agent_events import (
    FileChangeEvent,
    ModelTurnEvent,
    TextEvent,
    ThrottledEvent,
    ToolCallEvent,
    ToolDeniedEvent,
    ToolResultEvent,
)
from agentq.worker.agents.formats.json_lines import REFUSALS_MAX
from agentq.worker.agents.reader import PriorConversation
from agentq.worker.agents.verdicts import VerdictKind as Kind

INIT = {"type": "init", "session_id": "s1", "model": "gemini-2.5-pro"}
DONE = {"type": "result", "status": "success", "stats": {"input_tokens": 10, "cached": 4, "output_tokens": 2}}


def piece(words: str) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": words, "delta": True}


def test_a_real_turn_with_a_tool_is_told() -> None:
    reading = captured("gemini-tool")

    assert reading.types == ["began", "turn", "tool", "tool_end", "file", "turn", "text", "spent", "result"]
    assert reading.facts.text == "I wrote made.txt."
    assert reading.of(FileChangeEvent)[0].path.endswith("made.txt")
    assert (reading.facts.spent.input_tokens, reading.facts.spent.cached_tokens) == (2000, 800)
    assert reading.judged(0).kind is Kind.OK


def test_an_answer_in_pieces_is_told_as_one() -> None:
    call = {"type": "tool_use", "tool_name": "read_file", "tool_id": "t", "parameters": {"absolute_path": "/a"}}
    reading = read("gemini", [INIT, piece("Let me"), piece(" look."), call, piece("It "), piece("is so."), DONE])

    assert [said.text for said in reading.of(TextEvent)] == ["Let me look.", "It is so."]
    assert reading.facts.text == "It is so."
    assert reading.of(ToolCallEvent)[0].about == "/a"


def test_the_model_is_asked_again_when_tools_have_ended() -> None:
    two: list[dict[str, Any]] = [
        {"type": "tool_use", "tool_name": "ls", "tool_id": name, "parameters": {}} for name in ("a", "b")
    ]
    ends = [{"type": "tool_result", "tool_id": name, "status": "success", "output": "."} for name in ("a", "b")]

    assert len(read("gemini", [INIT, *two, *ends, piece("Hm"), DONE]).of(ModelTurnEvent)) == 2


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (41, Kind.AUTH),
        (42, Kind.INPUT),
        (44, Kind.INPUT),
        (52, Kind.INPUT),
        (53, Kind.MAX_TURNS),
        (54, Kind.AGENT_ERROR),
        (55, Kind.INPUT),
        (130, Kind.INTERRUPTED),
        (144, Kind.INPUT),
        (145, Kind.AUTH),
        (147, Kind.AUTH),
        (173, Kind.THROTTLED),
        (247, Kind.THROTTLED),
        (1, Kind.AGENT_ERROR),
    ],
)
def test_an_exit_code_is_a_word_of_its_own_or_what_is_left_of_a_status(code: int, kind: Kind) -> None:
    """401 is 145, which is no signal."""
    assert read("gemini", [INIT]).judged(code).kind is kind


@pytest.mark.parametrize(
    ("name", "code", "kind"),
    [
        ("gemini-400", 144, Kind.INPUT),
        ("gemini-401", 145, Kind.AUTH),
        ("gemini-context", 144, Kind.CONTEXT),
        ("gemini-credit", 147, Kind.AUTH),
        ("gemini-no-session", 42, Kind.NO_SESSION),
        ("gemini-shell", 0, Kind.OK),
    ],
)
def test_real_ends_are_called_by_their_names(name: str, code: int, kind: Kind) -> None:
    assert captured(name).judged(code).kind is kind


def test_a_quota_that_comes_back_is_a_limit() -> None:
    verdict = captured("gemini-quota").judged(173)

    assert verdict.kind is Kind.LIMITED
    assert verdict.reset_at_ms is not None


def test_a_silence_after_failed_requests_is_a_throttle() -> None:
    """It tries again and again, for more than a minute, and says so on stderr alone."""
    reading = captured("gemini-429")

    assert reading.judged(None, why="silence").kind is Kind.THROTTLED
    assert read("gemini", [INIT, piece("Hi")], ["Attempt 1 failed: x"]).judged(None, why="silence").kind is Kind.SILENCE


def test_requests_that_are_refused_one_after_the_other_are_told_and_end_it() -> None:
    told = '{"error":{"code":503,"status":"UNAVAILABLE","message":"The model is overloaded."}}'
    line = f"Attempt 1 failed with status 503. Retrying with backoff... _ApiError: {told}"
    reading = read("gemini", [INIT], [line] * REFUSALS_MAX)

    assert [held.why for held in reading.of(ThrottledEvent)] == ["The model is overloaded."] * REFUSALS_MAX
    assert reading.facts.refused
    verdict = reading.judged(None, why="refused")
    assert (verdict.kind, verdict.error) == (Kind.THROTTLED, "The model is overloaded.")


def test_an_error_over_several_lines_of_stderr_is_read_as_one() -> None:
    told = {"session_id": "s1", "error": {"type": "FatalAuthenticationError", "message": "Log in.", "code": 41}}
    reading = read("gemini", [], ["Loaded cached credentials.", *json.dumps(told, indent=2).splitlines(), "bye"])

    assert reading.facts.kind is Kind.AUTH
    assert reading.judged(1).error == "Log in."


def test_an_object_on_stderr_that_never_ends_is_not_kept() -> None:
    reading = read("gemini", [INIT], ["{", *(f'  "a{number}": 1,' for number in range(100_000)), "}"])

    assert reading.facts.kind is None


def test_a_session_that_exists_can_be_gone_on_with() -> None:
    reading = captured("gemini-session-in-use")

    assert reading.facts.session == "0c1f7e5a-8a52-4b5e-9c1e-2f6d3b7a9e10"
    assert reading.judged(42).kind is Kind.AGENT_ERROR, "not input, which would be final"


def test_a_tool_that_policy_forbids_is_a_denial() -> None:
    error = {"type": "policy_violation", "message": "no"}
    reading = read(
        "gemini",
        [
            INIT,
            {"type": "tool_use", "tool_name": "write_file", "tool_id": "t", "parameters": {"file_path": "a"}},
            {"type": "tool_result", "tool_id": "t", "status": "error", "error": error},
            DONE,
        ],
    )

    assert [denied.tool for denied in reading.of(ToolDeniedEvent)] == ["write_file"]
    assert reading.of(ToolResultEvent)[0].text == "no"
    assert reading.of(FileChangeEvent) == []


def test_its_tokens_are_priced() -> None:
    before = PriorConversation(prices={"gemini-2.5": {"input": 1.0, "cached": 0.0, "output": 10.0}})

    assert read("gemini", [INIT, DONE], before=before).facts.spent.cost_usd == pytest.approx((6 * 1 + 2 * 10) / 1e6)
