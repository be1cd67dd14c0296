"""opencode's language: each of its traps."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.agent_output import captured, read

from agentq.coordinator.model.agent_events import (
    AccountLimitEvent,
    FileChangeEvent,
    ModelTurnEvent,
    ResultEvent,
    SpendingEvent,
    TextEvent,
    ThrottledEvent,
    TodoListEvent,
    ToolCallEvent,
    ToolDeniedEvent,
    ToolResultEvent,
)
from agentq.worker.agents.formats.json_lines import REFUSALS_MAX
from agentq.worker.agents.formats.registry import create_reader
from agentq.worker.agents.reader import PriorConversation
from agentq.worker.agents.verdicts import VerdictKind as Kind


def event(kind: str, **part: Any) -> dict[str, Any]:
    return {"type": kind, "sessionID": "ses_1", "part": part}


def finish(reason: str, cost: float = 0.01) -> dict[str, Any]:
    tokens = {"input": 100, "output": 10, "reasoning": 5, "cache": {"read": 50, "write": 20}}
    return event("step_finish", reason=reason, cost=cost, tokens=tokens)


def failed(name: str = "APIError", **told: Any) -> dict[str, Any]:
    return {"type": "error", "sessionID": "ses_1", "error": {"name": name, "data": told}}


START = event("step_start")


def used(tool: str, **state: Any) -> dict[str, Any]:
    return event("tool_use", tool=tool, callID="c1", state={"status": "completed", **state})


def test_a_turn_of_two_steps_is_told_and_its_costs_are_added() -> None:
    writes = used("write", input={"filePath": "a.txt", "content": "x"}, output="ok")
    said = event("text", text="Done.")
    reading = read("opencode", [START, writes, finish("tool-calls"), START, said, finish("stop")])

    assert reading.types == [*("began", "turn", "tool", "tool_end", "file", "spent", "turn", "text", "spent", "result")]
    assert reading.of(SpendingEvent)[-1] == SpendingEvent(
        cost_usd=0.02, input_tokens=340, cached_tokens=100, output_tokens=30, turns=2
    )
    assert reading.facts.session == "ses_1"
    assert reading.facts.text == "Done."
    assert reading.judged(0).kind is Kind.OK


@pytest.mark.parametrize(
    ("name", "code", "kind"),
    [
        ("opencode-400", 1, Kind.INPUT),
        ("opencode-401", 1, Kind.AUTH),
        ("opencode-429", 1, Kind.THROTTLED),
        ("opencode-context", 1, Kind.CONTEXT),
        ("opencode-credit", 1, Kind.CREDIT),
        ("opencode-length", 0, Kind.AGENT_ERROR),
        ("opencode-no-session", 1, Kind.NO_SESSION),
        ("opencode-resumed", 0, Kind.OK),
        ("opencode-sigterm", -15, Kind.KILLED),
        ("opencode-tool", 0, Kind.OK),
    ],
)
def test_real_ends_are_called_by_their_names(name: str, code: int, kind: Kind) -> None:
    assert captured(name).judged(code).kind is kind


def test_a_step_that_ends_for_a_tool_is_not_the_end() -> None:
    reading = read("opencode", [START, finish("tool-calls")])

    assert not reading.facts.concluded
    assert reading.judged(0).kind is Kind.NO_RESULT


def test_a_step_after_the_last_is_not_ended() -> None:
    assert not read("opencode", [START, finish("stop"), START]).facts.concluded


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (failed(statusCode=401, message="Invalid"), Kind.AUTH),
        (failed(statusCode=402, message="Pay"), Kind.CREDIT),
        (failed(statusCode=429, message="Slow down", isRetryable=True), Kind.THROTTLED),
        (failed(statusCode=529, message="Overloaded", isRetryable=True), Kind.THROTTLED),
        (failed(statusCode=400, message="No", isRetryable=False), Kind.INPUT),
        (failed(statusCode=400, message="This model's maximum context length is 8192 tokens"), Kind.CONTEXT),
        (failed(statusCode=429, message="You exceeded your current quota, please check your plan and billing details"),
         Kind.CREDIT),
        (failed(message="socket hang up", isRetryable=True), Kind.THROTTLED),
        (failed(message="who knows"), Kind.AGENT_ERROR),
        (failed("ProviderAuthError", message="no key"), Kind.AUTH),
        (failed("MessageAbortedError", message="aborted"), Kind.INTERRUPTED),
    ],
)  # fmt: skip
def test_an_error_is_called_by_its_status_and_its_name(error: dict[str, Any], kind: Kind) -> None:
    reading = read("opencode", [START, error])

    assert reading.judged(1).kind is kind
    assert reading.judged(1).error == error["error"]["data"]["message"]


@pytest.mark.parametrize(
    ("reason", "kind"), [("content-filter", Kind.REFUSED), ("length", Kind.AGENT_ERROR), ("error", Kind.AGENT_ERROR)]
)
def test_a_step_that_ended_badly_is_no_good_last_word(reason: str, kind: Kind) -> None:
    reading = read("opencode", [START, event("text", text="I ca"), finish(reason)])

    assert reading.of(ResultEvent) == [ResultEvent(ok=False, text="I ca")]
    assert reading.judged(0).kind is kind


def test_a_silence_of_which_it_says_nothing_is_a_silence() -> None:
    """It asks again for ever, and prints nothing in JSON."""
    assert read("opencode", [START]).judged(None, why="silence").kind is Kind.SILENCE


def logged(error: str, small: str = "false") -> str:
    about = f"providerID=p modelID=m session.id=ses_1 small={small} agent=build mode=primary"
    return f'timestamp=2026-11-19T16:49:09.317Z level=ERROR run=1 message="stream error" {about} error.error="{error}"'


def test_a_limit_that_only_its_log_tells_is_known_at_once() -> None:
    reading = read("opencode", [], [logged("AI_APICallError: The usage limit has been reached")])

    assert reading.facts.refused
    assert [limited.reached for limited in reading.of(AccountLimitEvent)] == [True]
    verdict = reading.judged(None, why="refused")
    assert (verdict.kind, verdict.error) == (Kind.LIMITED, "The usage limit has been reached")


def test_an_outage_is_told_each_time_and_ends_the_agent_that_never_gives_up() -> None:
    line = logged('AI_APICallError: He said \\"no\\"')
    few, many = read("opencode", [], [line] * (REFUSALS_MAX - 1)), read("opencode", [], [line] * REFUSALS_MAX)

    assert [held.why for held in few.of(ThrottledEvent)] == ['He said "no"'] * (REFUSALS_MAX - 1)
    assert not few.facts.refused
    assert many.facts.refused
    assert many.judged(None, why="refused").kind is Kind.THROTTLED


def test_an_answer_ends_the_refusals_before_it() -> None:
    reader = create_reader("opencode", PriorConversation())
    for _ in range(REFUSALS_MAX):
        list(reader.read_error(logged("AI_APICallError: Overloaded")))
        list(reader.read(json.dumps(START)))

    assert not reader.facts.refused


def test_a_title_that_is_refused_is_nothing() -> None:
    reading = read(
        "opencode", [], [logged("AI_RetryError: Failed after 3 attempts. Last error: No", "true")] * REFUSALS_MAX
    )

    assert reading.agent_events == []
    assert not reading.facts.refused


def test_a_permission_that_was_rejected_is_a_denial() -> None:
    error = "The user rejected permission to use this specific tool call."
    reading = read("opencode", [START, used("bash", status="error", input={"command": "rm x"}, error=error)])

    assert [denied.tool for denied in reading.of(ToolDeniedEvent)] == ["bash"]
    assert reading.of(ToolResultEvent)[0].ok is False
    assert reading.of(ToolCallEvent)[0].about == "rm x"


def test_a_model_without_a_price_costs_what_the_profile_says() -> None:
    prices = {"big": {"input": 1.0, "cached": 0.0, "output": 0.0}}
    priced = read(
        "opencode", [START, finish("stop", cost=0)], before=PriorConversation(prices=prices, model="maker/big-1")
    )
    unknown = read("opencode", [START, finish("stop", cost=0)])

    assert priced.facts.spent.cost_usd == pytest.approx(120 / 1e6)
    assert unknown.facts.spent.cost_usd is None


def test_plans_and_words_are_told() -> None:
    plan = used("todowrite", input={"todos": [{"content": "a", "status": "in_progress"}]})
    reading = read("opencode", [START, plan, event("text", text="Hm")])

    assert reading.of(TodoListEvent)[0].items == [("a", "doing")]
    assert reading.of(TextEvent)[0].text == "Hm"
    assert [turned.number for turned in reading.of(ModelTurnEvent)] == [1]


def test_a_read_changes_no_file() -> None:
    assert read("opencode", [START, used("read", input={"filePath": "a.txt"})]).of(FileChangeEvent) == []


def test_a_session_that_it_does_not_know_is_called_so() -> None:
    assert read("opencode", [], ["\x1b[91m\x1b[1mError: \x1b[0mSession not found"]).judged(1).kind is Kind.NO_SESSION


def test_several_that_start_at_once_in_a_new_home_try_again_in_turn() -> None:
    assert read("opencode", [], ["Error: database is locked"]).judged(1).kind is Kind.THROTTLED
