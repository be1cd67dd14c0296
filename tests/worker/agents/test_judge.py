"""Facts and an end make a verdict."""

from __future__ import annotations

from typing import Any

import pytest

from agentq.coordinator.doings import Sleeps
from agentq.coordinator.lifecycle import COMPLETING, OutcomeClass
from agentq.worker.agents.judge import FAR_MS, End, judged
from agentq.worker.agents.pricing import cost_of, price_of
from agentq.worker.agents.reading import Facts
from agentq.worker.agents.services import kind_of
from agentq.worker.agents.verdicts import CONSEQUENCES, VerdictKind

Kind = VerdictKind
NOW = 1_800_000_000_000
HOUR = 3_600_000


def end(exit_code: int | None = 0, **told: Any) -> End:
    return End(exit_code=exit_code, now_ms=NOW, **told)


def good(**told: Any) -> Facts:
    return Facts(told=True, concluded=True, ok=True, text="Done.", **told)


def bad(kind: Kind | None = None, error: str = "It broke.", **told: Any) -> Facts:
    return Facts(told=True, concluded=True, ok=False, kind=kind, error=error, **told)


SLEEP = Sleeps(for_ms=1000)


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
        (Facts(sleep=SLEEP), end(143, why="sleep"), Kind.SLEEPS),
        (Facts(), end(143, why="sleep"), Kind.NO_RESULT),
        (bad(), end(1), Kind.AGENT_ERROR),
        (bad(), end(0), Kind.AGENT_ERROR),
        (bad(Kind.AUTH), end(1), Kind.AUTH),
        (bad(Kind.AUTH), end(143, why="linger"), Kind.AUTH),
        (bad(Kind.MAX_TURNS, sleep=SLEEP), end(1), Kind.MAX_TURNS),
        (bad(exits={7: Kind.INPUT}), end(7), Kind.INPUT),
        (Facts(), end(0), Kind.NO_RESULT),
        (Facts(told=True), end(0), Kind.NO_RESULT),
        (Facts(), end(1), Kind.AGENT_ERROR),
        (Facts(), end(None, signal=9), Kind.KILLED),
        (Facts(), end(None, signal=2), Kind.INTERRUPTED),
        (Facts(), end(137), Kind.KILLED),
        (Facts(), end(130), Kind.INTERRUPTED),
        (Facts(exits={145: Kind.AUTH}), end(145), Kind.AUTH),
        (Facts(exits={0: Kind.OK}), end(0), Kind.OK),
        (Facts(exits={0: Kind.OK}), end(0, changed=False), Kind.NO_CHANGES),
        (Facts(exits={0: Kind.OK}, kind=Kind.AUTH), end(0), Kind.AUTH),
        (Facts(kind=Kind.NO_SESSION), end(1), Kind.NO_SESSION),
        (Facts(), end(143, why="startup"), Kind.STARTUP),
        (Facts(), end(143, why="silence"), Kind.SILENCE),
        (Facts(), end(143, why="timeout"), Kind.TIMEOUT),
        (Facts(kind=Kind.AUTH), end(143, why="startup"), Kind.AUTH),
        (Facts(kind=Kind.THROTTLED), end(143, why="silence"), Kind.THROTTLED),
        (Facts(kind=Kind.THROTTLED, refused=True), end(143, why="refused"), Kind.THROTTLED),
        (Facts(kind=Kind.THROTTLED), end(143, why="budget"), Kind.BUDGET),
        (Facts(), end(143, why="no_price"), Kind.NO_PRICE),
        (Facts(), end(143, why="linger"), Kind.NO_RESULT),
    ],
)
def test_facts_and_an_end_make_a_verdict(facts: Facts, ended: End, kind: Kind) -> None:
    verdict = judged(facts, ended)

    assert verdict.kind is kind
    all_is_well = verdict.consequence.class_ in COMPLETING
    assert bool(verdict.error) is not all_is_well, "a failure says why, and nothing else does"


def limited(error: str = "Full.", kind: Kind = Kind.LIMITED, reset_at_ms: int | None = None) -> tuple[Kind, int | None]:
    verdict = judged(bad(kind, error, reset_at_ms=reset_at_ms), end(1))
    return verdict.kind, verdict.reset_at_ms


def test_a_limit_has_an_end_that_lies_ahead() -> None:
    assert limited(reset_at_ms=NOW + HOUR) == (Kind.LIMITED, NOW + HOUR)
    assert limited(reset_at_ms=NOW - HOUR) == (Kind.THROTTLED, None)
    assert limited(reset_at_ms=NOW + FAR_MS) == (Kind.THROTTLED, None)


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
    assert judged(Facts(error="noise"), end(143, why="silence")).error == "it fell silent, and was ended"
    assert judged(Facts(error="noise"), end(None, signal=9)).error == "somebody killed it (signal 9)"
    assert judged(Facts(error="401"), end(1)).error == "401"


def test_every_verdict_has_its_consequence() -> None:
    assert set(CONSEQUENCES) == set(VerdictKind)
    for kind, consequence in CONSEQUENCES.items():
        assert (consequence.class_ in COMPLETING) is (consequence.run in ("finish", "park")), kind
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
    assert kind_of(status, error) is kind


def test_a_price_is_that_of_the_longest_name() -> None:
    prices = {"gpt-5": {"input": 1.0, "output": 1.0}, "gpt-5-mini": {"input": 0.1, "output": 0.1}}

    assert price_of(prices, "gpt-5-mini-2026") == prices["gpt-5-mini"]
    assert price_of(prices, "gpt-5") == prices["gpt-5"]
    assert price_of(prices, "openai/gpt-5.2") == prices["gpt-5"]
    assert price_of(prices, "gpt-4") is None
    assert price_of(prices, None) is None


def test_what_was_read_from_the_cache_is_within_what_was_read() -> None:
    prices = {"m": {"input": 10.0, "cached": 1.0, "output": 100.0}}

    assert cost_of(prices, "m", 1_000_000, 900_000, 10_000) == pytest.approx(1.0 + 0.9 + 1.0)
    assert cost_of(prices, "m", 10, 1_000_000, 0) == pytest.approx(10e-6), "more from the cache than was read is not"
    assert cost_of({}, "m", 10, 0, 0) is None
