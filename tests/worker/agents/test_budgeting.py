"""What an attempt may still spend."""

from __future__ import annotations

import pytest
from support.agent_output import CAPTURED, read

from agentq.coordinator.run import Spending
from agentq.coordinator.turn import Budgets
from agentq.worker.agents.budgeting import Allowance, Purse
from agentq.worker.agents.verdicts import VerdictKind as Kind

NOTHING = Spending()


def purse(before: Spending = NOTHING, *, tells_cost: bool = False, **most: float) -> Purse:
    return Purse(Allowance("run", Budgets.model_validate(most), before), tells_cost=tells_cost)


def test_a_cost_that_is_told_with_the_last_word_is_not_unknown_before_it() -> None:
    """Claude tells its tokens as it goes, and its cost in the end."""
    lines = (CAPTURED / "claude-tool.jsonl").read_text(encoding="utf-8").splitlines()
    spent = Spending.model_validate(read("claude", lines[:2]).facts.spent.model_dump(exclude={"type"}))
    assert spent.input_tokens
    assert spent.cost_usd is None

    assert purse(cost_usd=1.0, tells_cost=True).overdrawn(spent) is None
    verdict = purse(cost_usd=1.0).overdrawn(spent)
    assert verdict is not None
    assert verdict.kind is Kind.NO_PRICE


@pytest.mark.parametrize(
    ("spent", "kind"),
    [
        (Spending(cost_usd=0.7), Kind.BUDGET),
        (Spending(cost_usd=0.2, input_tokens=300, output_tokens=300), Kind.BUDGET),
        (Spending(cost_usd=0.2, turns=3), Kind.MAX_TURNS),
    ],
)
def test_what_was_spent_before_counts(spent: Spending, kind: Kind) -> None:
    before = Spending(cost_usd=0.4, input_tokens=400, output_tokens=100, turns=2)
    verdict = purse(before, cost_usd=1.0, tokens=1000, turns=4).overdrawn(spent)

    assert verdict is not None
    assert verdict.kind is kind
    assert purse(cost_usd=1.0, tokens=1000, turns=4).overdrawn(spent) is None


def test_an_empty_purse_begins_nothing() -> None:
    empty = purse(Spending(cost_usd=1.0), cost_usd=1.0).is_empty()
    assert empty is not None
    assert empty.kind is Kind.BUDGET
    assert purse(Spending(turns=2), turns=2).is_empty() is not None
    assert purse(Spending(cost_usd=0.5, turns=1), cost_usd=1.0, turns=2).is_empty() is None


def test_what_is_left_is_the_least_of_all_budgets() -> None:
    both = Purse(
        Allowance("run", Budgets(cost_usd=1.0, turns=9), Spending(cost_usd=0.5, turns=1)),
        Allowance("session", Budgets(cost_usd=5.0), Spending(cost_usd=4.75)),
    )

    assert both.left() == Budgets(cost_usd=0.25, turns=8)
    assert Purse().left() is None
    assert Purse().uncounted() is None
    assert both.uncounted() is not None
