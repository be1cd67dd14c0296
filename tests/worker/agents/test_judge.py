"""Facts and an end make a verdict."""

from __future__ import annotations

from typing import Any

import pytest

from agentq.coordinator.model.agent_events import SleepRequestEvent
from agentq.coordinator.model.lifecycle import COMPLETING_CLASSES, OutcomeClass
from agentq.worker.agents.accounts.pricing import compute_cost, find_price
from agentq.worker.agents.accounts.service_errors import classify_service_error
from agentq.worker.agents.reader import AgentFacts
from agentq.worker.agents.verdict_rules import RESET_MS_MAX, AgentEnd, judge_end
from agentq.worker.agents.verdicts import CONSEQUENCES, VerdictKind

Kind = VerdictKind
NOW = 1_800_000_000_000
HOUR = 3_600_000


def end(exit_code: int | None = 0, **told: Any) -> AgentEnd:
    return AgentEnd(exit_code=exit_code, now_ms=NOW, **told)


def good(**told: Any) -> AgentFacts:
    return AgentFacts(has_output=True, concluded=True, ok=True, text="Done.", **told)


def bad(kind: Kind | None = None, error: str = "It broke.", **told: Any) -> AgentFacts:
    return AgentFacts(has_output=True, concluded=True, ok=False, kind=kind, error=error, **told)


SLEEP = SleepRequestEvent(for_ms=1000)


@pytest.mark.parametrize(
    ("facts", "ended", "kind"),
    [
        (good(), end(), Kind.OK),
        (good(), end(1), Kind.AGENT_ERROR),
        (good(), end(None, signal=9), Kind.LINGERED),
        (good(), end(143), Kind.LINGERED),
        (good(), end(143, why="linger"), Kind.LINGERED),
        (good(), end(143, why="timeout"), Kind.LINGERED),
        (good(), end(143, why="budget"), Kind.LINGERED),
        (good(), end(143, why="cancelled"), Kind.INTERRUPTED),
        (good(denials=["Bash"]), end(), Kind.OK_WITH_DENIALS),
        (good(denials=["Bash"]), end(143, why="linger"), Kind.LINGERED),
        (good(), end(changed=False), Kind.NO_CHANGES),
        (good(), end(143, why="linger", changed=False), Kind.NO_CHANGES),
        (good(), end(changed=False, declared=True), Kind.OK),
        (good(), end(changed=True), Kind.OK),
        (good(kind=Kind.PLAN_ONLY), end(), Kind.PLAN_ONLY),
        (good(kind=Kind.REFUSED), end(declared=True, changed=False), Kind.REFUSED),
        (good(sleep=SLEEP), end(), Kind.SLEEPS),
        (good(sleep=SLEEP), end(143, why="sleep"), Kind.SLEEPS),
        (good(sleep=SLEEP), end(changed=False), Kind.SLEEPS),
        (AgentFacts(sleep=SLEEP), end(143, why="sleep"), Kind.SLEEPS),
        (AgentFacts(), end(143, why="sleep"), Kind.NO_RESULT),
        (bad(), end(1), Kind.AGENT_ERROR),
        (bad(), end(0), Kind.AGENT_ERROR),
        (bad(Kind.AUTH), end(1), Kind.AUTH),
        (bad(Kind.AUTH), end(143, why="linger"), Kind.AUTH),
        (bad(Kind.MAX_TURNS, sleep=SLEEP), end(1), Kind.MAX_TURNS),
        (bad(exits={7: Kind.INPUT}), end(7), Kind.INPUT),
        (AgentFacts(), end(0), Kind.NO_RESULT),
        (AgentFacts(has_output=True), end(0), Kind.NO_RESULT),
        (AgentFacts(), end(1), Kind.AGENT_ERROR),
        (AgentFacts(), end(None, signal=9), Kind.KILLED),
        (AgentFacts(), end(None, signal=2), Kind.INTERRUPTED),
        (AgentFacts(), end(137), Kind.KILLED),
        (AgentFacts(), end(130), Kind.INTERRUPTED),
        (AgentFacts(exits={145: Kind.AUTH}), end(145), Kind.AUTH),
        (AgentFacts(exits={0: Kind.OK}), end(0), Kind.OK),
        (AgentFacts(exits={0: Kind.OK}), end(0, changed=False), Kind.NO_CHANGES),
        (AgentFacts(exits={0: Kind.OK}, kind=Kind.AUTH), end(0), Kind.AUTH),
        (AgentFacts(kind=Kind.NO_SESSION), end(1), Kind.NO_SESSION),
        (AgentFacts(), end(143, why="startup"), Kind.STARTUP),
        (AgentFacts(), end(143, why="silence"), Kind.SILENCE),
        (AgentFacts(), end(143, why="timeout"), Kind.TIMEOUT),
        (AgentFacts(kind=Kind.AUTH), end(143, why="startup"), Kind.AUTH),
        (AgentFacts(kind=Kind.THROTTLED), end(143, why="silence"), Kind.THROTTLED),
        (AgentFacts(kind=Kind.THROTTLED, refused=True), end(143, why="refused"), Kind.THROTTLED),
        (AgentFacts(kind=Kind.THROTTLED), end(143, why="budget"), Kind.BUDGET),
        (AgentFacts(), end(143, why="no_price"), Kind.NO_PRICE),
        (AgentFacts(), end(143, why="linger"), Kind.NO_RESULT),
    ],
)
def test_facts_and_an_end_make_a_verdict(facts: AgentFacts, ended: AgentEnd, kind: Kind) -> None:
    verdict = judge_end(facts, ended)

    assert verdict.kind is kind
    all_is_well = verdict.consequence.class_ in COMPLETING_CLASSES
    assert bool(verdict.error) is not all_is_well, "a failure says why, and nothing else does"


def limited(error: str = "Full.", kind: Kind = Kind.LIMITED, reset_at_ms: int | None = None) -> tuple[Kind, int | None]:
    verdict = judge_end(bad(kind, error, reset_at_ms=reset_at_ms), end(1))
    return verdict.kind, verdict.reset_at_ms


def test_a_limit_has_an_end_that_lies_ahead() -> None:
    assert limited(reset_at_ms=NOW + HOUR) == (Kind.LIMITED, NOW + HOUR)
    assert limited(reset_at_ms=NOW - HOUR) == (Kind.THROTTLED, None)
    assert limited(reset_at_ms=NOW + RESET_MS_MAX) == (Kind.THROTTLED, None)


def test_a_limit_that_names_no_end_is_a_limit_all_the_same() -> None:
    assert limited() == (Kind.LIMITED, None)


def test_a_limit_that_is_told_in_words_ends_in_the_minute_that_they_name() -> None:
    assert limited("You've hit your limit. Try again in 2 hours") == (Kind.LIMITED, NOW + 2 * HOUR + 60_000)


def test_a_throttle_is_waited_for_as_long_as_the_service_asks() -> None:
    assert limited("Please try again in 20s", Kind.THROTTLED) == (Kind.THROTTLED, NOW + 20_000)
    assert limited("Too many requests", Kind.THROTTLED) == (Kind.THROTTLED, None)


def test_a_throttle_whose_words_are_of_the_account_is_a_limit() -> None:
    words = "You've hit your weekly limit · try again in 1 day"

    assert limited(words, Kind.THROTTLED) == (Kind.LIMITED, NOW + 24 * HOUR + 60_000)


def test_a_credit_that_comes_back_by_itself_is_a_limit() -> None:
    assert limited("No money", Kind.CREDIT) == (Kind.CREDIT, None)
    assert limited("Quota exceeded. Retry after 3600s", Kind.CREDIT)[0] is Kind.LIMITED


def test_other_verdicts_have_no_reset() -> None:
    assert limited("try again in 2 hours", Kind.AGENT_ERROR) == (Kind.AGENT_ERROR, None)


def test_an_end_by_us_is_explained_by_us() -> None:
    assert judge_end(AgentFacts(error="noise"), end(143, why="silence")).error == "it fell silent, and was ended"
    assert judge_end(AgentFacts(error="noise"), end(None, signal=9)).error == "somebody killed it (signal 9)"
    assert judge_end(AgentFacts(error="401"), end(1)).error == "401"


def test_every_verdict_has_its_consequence() -> None:
    assert set(CONSEQUENCES) == set(VerdictKind)
    for kind, consequence in CONSEQUENCES.items():
        assert (consequence.class_ in COMPLETING_CLASSES) is (consequence.run in ("finish", "park")), kind
        assert (consequence.run in ("back off", "defer")) is (consequence.class_ is OutcomeClass.LIMIT), kind


@pytest.mark.parametrize(
    ("status", "error", "kind"),
    [
        (401, "", Kind.AUTH),
        (402, "", Kind.CREDIT),
        (403, "", Kind.AUTH),
        (400, "Bad.", Kind.INPUT),
        (400, "Your credit balance is too low to access the API.", Kind.CREDIT),
        (400, "prompt is too long: 212345 tokens > 200000 maximum", Kind.CONTEXT),
        (429, '{"error":{"code":"insufficient_quota"}}', Kind.CREDIT),
        (429, '{"error":{"type":"rate_limit_error"}}', Kind.THROTTLED),
        (529, "", Kind.THROTTLED),
        (500, "", Kind.THROTTLED),
        (0, '{"type":"error","error":{"type":"overloaded_error"}}', Kind.THROTTLED),
        (0, "who knows", None),
        (200, "", None),
    ],
)
def test_what_a_service_answers_is_called_by_its_name(status: int, error: str, kind: Kind | None) -> None:
    assert classify_service_error(status, error) is kind


def test_a_price_is_that_of_the_longest_name() -> None:
    prices = {"gpt-5": {"input": 1.0, "output": 1.0}, "gpt-5-mini": {"input": 0.1, "output": 0.1}}

    assert find_price(prices, "gpt-5-mini-2026") == prices["gpt-5-mini"]
    assert find_price(prices, "gpt-5") == prices["gpt-5"]
    assert find_price(prices, "openai/gpt-5.2") == prices["gpt-5"]
    assert find_price(prices, "gpt-4") is None
    assert find_price(prices, None) is None


def test_what_was_read_from_the_cache_is_within_what_was_read() -> None:
    prices = {"m": {"input": 10.0, "cached": 1.0, "output": 100.0}}

    assert compute_cost(prices, "m", 1_000_000, 900_000, 10_000) == pytest.approx(1.0 + 0.9 + 1.0)
    assert compute_cost(prices, "m", 10, 1_000_000, 0) == pytest.approx(10e-6), (
        "more from the cache than was read is not"
    )
    assert compute_cost({}, "m", 10, 0, 0) is None
