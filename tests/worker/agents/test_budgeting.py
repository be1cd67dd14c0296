"""What an attempt may still spend."""

from __future__ import annotations

import pytest
from support.agent_output import CAPTURED, read

from agentq.coordinator.model.agent_options import AgentBudgets
from agentq.coordinator.model.spec import AgentSpending
from agentq.worker.agents.accounts.budget_limits import BudgetAllowance, BudgetLimits
from agentq.worker.agents.verdicts import VerdictKind as Kind

NOTHING = AgentSpending()


def purse(before: AgentSpending = NOTHING, *, reports_cost: bool = False, **most: float) -> BudgetLimits:
    return BudgetLimits(BudgetAllowance("run", AgentBudgets.model_validate(most), before), reports_cost=reports_cost)


def test_a_cost_that_is_told_with_the_last_word_is_not_unknown_before_it() -> None:
    """Claude tells its tokens as it goes, and its cost in the end."""
    lines = (CAPTURED / "claude-tool.jsonl").read_text(encoding="utf-8").splitlines()
    spent = AgentSpending.model_validate(read("claude", lines[:2]).facts.spent.model_dump(exclude={"type"}))
    assert spent.input_tokens
    assert spent.cost_usd is None

    assert purse(cost_usd=1.0, reports_cost=True).check_spending(spent) is None
    verdict = purse(cost_usd=1.0).check_spending(spent)
    assert verdict is not None
    assert verdict.kind is Kind.NO_PRICE


@pytest.mark.parametrize(
    ("spent", "kind"),
    [
        (AgentSpending(cost_usd=0.7), Kind.BUDGET),
        (AgentSpending(cost_usd=0.2, input_tokens=300, output_tokens=300), Kind.BUDGET),
        (AgentSpending(cost_usd=0.2, turns=3), Kind.MAX_TURNS),
    ],
)
def test_what_was_spent_before_counts(spent: AgentSpending, kind: Kind) -> None:
    before = AgentSpending(cost_usd=0.4, input_tokens=400, output_tokens=100, turns=2)
    verdict = purse(before, cost_usd=1.0, tokens=1000, turns=4).check_spending(spent)

    assert verdict is not None
    assert verdict.kind is kind
    assert purse(cost_usd=1.0, tokens=1000, turns=4).check_spending(spent) is None


def test_an_empty_purse_begins_nothing() -> None:
    empty = purse(AgentSpending(cost_usd=1.0), cost_usd=1.0).check_start()
    assert empty is not None
    assert empty.kind is Kind.BUDGET
    assert purse(AgentSpending(turns=2), turns=2).check_start() is not None
    assert purse(AgentSpending(cost_usd=0.5, turns=1), cost_usd=1.0, turns=2).check_start() is None


def test_what_is_left_is_the_least_of_all_budgets() -> None:
    both = BudgetLimits(
        BudgetAllowance("run", AgentBudgets(cost_usd=1.0, turns=9), AgentSpending(cost_usd=0.5, turns=1)),
        BudgetAllowance("session", AgentBudgets(cost_usd=5.0), AgentSpending(cost_usd=4.75)),
    )

    assert both.remaining() == AgentBudgets(cost_usd=0.25, turns=8)
    assert BudgetLimits().remaining() is None
    assert BudgetLimits().find_uncounted() is None
    assert both.find_uncounted() is not None
