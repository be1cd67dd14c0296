"""Programs that print text: aider, of whose prose errors are read, and any other, of whose prose nothing is."""

from __future__ import annotations

import pytest
from support.agent_output import read

from agentq.coordinator.model.agent_events import (
    FileChangeEvent,
    SpendingEvent,
    StartedEvent,
    TextEvent,
    ThrottledEvent,
)
from agentq.worker.agents.reader import PriorConversation
from agentq.worker.agents.verdicts import VerdictKind as Kind

TOKENS = "Tokens: 1.2k sent, 2.0k cache hit, 300 received. Cost: $0.0040 message, $0.01 session."


def test_each_line_is_said_and_the_exit_code_is_the_last_word() -> None:
    reading = read("text", ["one", "", "two  "])

    assert [said.text for said in reading.of(TextEvent)] == ["one", "two"]
    assert reading.facts.text == "one\ntwo"
    assert reading.judged(0).kind is Kind.OK
    assert reading.judged(3).kind is Kind.AGENT_ERROR
    assert reading.judged(-9).kind is Kind.KILLED
    assert reading.judged(0, why="timeout").kind is Kind.TIMEOUT
    assert reading.judged(0, changed=False).kind is Kind.NO_CHANGES


def test_what_it_complained_of_last_is_its_error() -> None:
    assert read("text", [], ["", "disk full", ""]).judged(1).error == "disk full"


def test_what_any_program_says_means_nothing() -> None:
    words = ["litellm.AuthenticationError: no", '{"type":"result","is_error":true}', "You've hit your usage limit"]

    assert read("text", words).judged(0).kind is Kind.OK


def test_a_long_output_is_kept_from_its_end() -> None:
    reading = read("text", [f"line {number}" for number in range(10_000)])

    assert reading.facts.text.endswith("line 9999")
    assert len(reading.facts.text) <= 16 << 10


def test_aider_tells_what_it_does_and_what_it_costs() -> None:
    lines = ["Aider v0.86.2", "Main model: openai/gpt-5 with diff edit format", "I change it.", TOKENS]
    reading = read("aider", [*lines, "Applied edit to src/a b.py", "Tokens: 100 sent, 5 received."])

    assert reading.of(StartedEvent) == [StartedEvent(model="openai/gpt-5")]
    assert [changed.path for changed in reading.of(FileChangeEvent)] == ["src/a b.py"]
    assert reading.of(SpendingEvent)[0] == SpendingEvent(
        cost_usd=0.01, input_tokens=3200, cached_tokens=2000, output_tokens=300, turns=1
    )
    assert reading.facts.spent.input_tokens == 3300
    assert reading.judged(0).kind is Kind.OK


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("litellm.AuthenticationError: AuthenticationError: OpenAIException - Incorrect key", Kind.AUTH),
        ("litellm.BadRequestError: OpenAIException - bad", Kind.INPUT),
        ("litellm.BadRequestError: AnthropicException - Your credit balance is too low", Kind.CREDIT),
        ("litellm.RateLimitError: RateLimitError: OpenAIException - slow down", Kind.THROTTLED),
        ("litellm.ContextWindowExceededError: too long", Kind.CONTEXT),
        ("litellm.InternalServerError: x", Kind.THROTTLED),
        ("litellm.Timeout: x", Kind.THROTTLED),
        ("litellm.exceptions.SomeOtherError: x", Kind.AGENT_ERROR),
    ],
)
def test_aider_ends_with_0_on_errors_which_are_read_from_its_text(line: str, kind: Kind) -> None:
    verdict = read("aider", ["Aider v0.86.2", line, "https://docs.example"]).judged(0)

    assert verdict.kind is kind
    assert verdict.error == line


@pytest.mark.parametrize(
    "lines",
    [
        ["litellm.RateLimitError: slow", "Retrying in 0.2 seconds...", "Done.", TOKENS],
        ["The log says:", "litellm.AuthenticationError: no", TOKENS],
        ["It may say litellm.AuthenticationError: no"],
        ["  litellm.AuthenticationError: no"],
    ],
)
def test_an_error_that_an_answer_followed_was_none(lines: list[str]) -> None:
    assert read("aider", lines).judged(0).kind is Kind.OK


def test_aider_waits_before_it_asks_again() -> None:
    reading = read("aider", ["litellm.RateLimitError: slow", "Retrying in 0.2 seconds..."])

    assert reading.of(ThrottledEvent) == [ThrottledEvent(why="litellm.RateLimitError: slow", for_ms=200)]


def test_a_model_without_a_price_of_aiders_is_priced_by_the_profile() -> None:
    before = PriorConversation(prices={"gpt": {"input": 1.0, "output": 2.0}}, model="openai/gpt-9")

    assert read("aider", ["Tokens: 100 sent, 5 received."], before=before).facts.spent.cost_usd == pytest.approx(11e-5)
