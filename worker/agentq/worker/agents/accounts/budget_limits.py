"""How much an attempt may still spend, of the budgets of its run and its session."""

from __future__ import annotations

from dataclasses import dataclass

from agentq.coordinator.model.agent_options import AgentBudgets
from agentq.coordinator.model.spec import AgentSpending
from agentq.worker.agents.verdicts import Verdict, VerdictKind


@dataclass(frozen=True, slots=True)
class BudgetAllowance:
    """A budget, its owner, and what was spent of it before this attempt."""

    owner: str
    budgets: AgentBudgets
    spent_before: AgentSpending


class BudgetLimits:
    """All budgets of one attempt."""

    def __init__(self, *allowances: BudgetAllowance, reports_cost: bool = False) -> None:
        self._allowances = allowances
        self._reports_cost = reports_cost
        """Whether the agent reports its cost, perhaps only at its end."""

    def find_uncounted(self) -> Verdict | None:
        """A verdict, if money is limited whose spending cannot be counted."""
        return next(
            (_build_uncounted_verdict(each) for each in self._allowances if each.budgets.cost_usd is not None), None
        )

    def remaining(self) -> AgentBudgets | None:
        """What the attempt may spend, for agents that can limit themselves."""
        costs = [
            each.budgets.cost_usd - _get_known_cost(each.spent_before)
            for each in self._allowances
            if each.budgets.cost_usd
        ]
        turns = [each.budgets.turns - each.spent_before.turns for each in self._allowances if each.budgets.turns]
        if not costs and not turns:
            return None
        return AgentBudgets(cost_usd=min(costs, default=None), turns=min(turns, default=None))

    def check_start(self) -> Verdict | None:
        """A verdict, if nothing is left."""
        for each in self._allowances:
            before, most = each.spent_before, each.budgets
            if most.turns is not None and before.turns >= most.turns:
                return Verdict(VerdictKind.MAX_TURNS, _format_turns(each, before.turns))
            verdict = _check_budget(each, before.input_tokens + before.output_tokens, _get_known_cost(before))
            if verdict is not None:
                return verdict
        return None

    def check_spending(self, spent: AgentSpending) -> Verdict | None:
        """A verdict, if an attempt that has spent this much must not continue."""
        for each in self._allowances:
            before, most = each.spent_before, each.budgets
            turns = before.turns + spent.turns
            if most.turns is not None and turns > most.turns:
                return Verdict(VerdictKind.MAX_TURNS, _format_turns(each, most.turns))
            unknown = spent.cost_usd is None and not self._reports_cost
            if most.cost_usd is not None and unknown and spent.input_tokens + spent.output_tokens:
                return _build_uncounted_verdict(each)
            tokens = before.input_tokens + before.output_tokens + spent.input_tokens + spent.output_tokens
            verdict = _check_budget(each, tokens, _get_known_cost(before) + (spent.cost_usd or 0))
            if verdict is not None:
                return verdict
        return None


def _check_budget(each: BudgetAllowance, tokens: int, cost_usd: float) -> Verdict | None:
    most = each.budgets
    if most.tokens is not None and tokens >= most.tokens:
        return Verdict(VerdictKind.BUDGET, f"the {each.owner} has used {tokens:,} tokens; {most.tokens:,} is the most")
    if most.cost_usd is not None and cost_usd >= most.cost_usd:
        return Verdict(
            VerdictKind.BUDGET, f"the {each.owner} has cost ${cost_usd:.2f}; ${most.cost_usd:.2f} is the most"
        )
    return None


def _build_uncounted_verdict(each: BudgetAllowance) -> Verdict:
    sentence = f"the cost of the {each.owner} is capped, and nobody knows what its model costs"
    return Verdict(VerdictKind.NO_PRICE, f"{sentence}; name the model, and set its price in the profile's [prices]")


def _format_turns(each: BudgetAllowance, turns: int) -> str:
    return f"the {each.owner} has used {turns} turns, and that is the most"


def _get_known_cost(before: AgentSpending) -> float:
    """The known part of a cost."""
    return before.known_usd or 0 if before.cost_usd is None else before.cost_usd
