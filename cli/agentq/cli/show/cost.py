"""What an agent has spent, in a few words: `$0.12 · 3 turns · 12k tokens`."""

from __future__ import annotations

from agentq.coordinator.model.agent_events import SpendingEvent
from agentq.coordinator.model.spec import AgentSpending


def format_spending(spent: SpendingEvent | AgentSpending) -> str:
    """Dollars, turns and tokens; nothing at all where nothing was spent."""
    tokens = spent.input_tokens + spent.output_tokens
    if not (spent.cost_usd or spent.turns or tokens):
        return ""
    known = spent.known_usd if isinstance(spent, AgentSpending) else None
    cost = f"at least {format_dollars(known)}" if known else "cost unknown"
    cost = cost if spent.cost_usd is None else format_dollars(spent.cost_usd)
    turns = f"{spent.turns} turn{'' if spent.turns == 1 else 's'}" if spent.turns else ""
    read = f"{format_amount(tokens)} token{'' if tokens == 1 else 's'}" if tokens else ""
    return " · ".join(filter(None, (cost, turns, read)))


def format_dollars(cost_usd: float) -> str:
    """Two decimals, and up to four where there is less than a dollar."""
    if cost_usd >= 1 or not cost_usd:
        return f"${cost_usd:,.2f}"
    if cost_usd < 0.0001:
        return "under $0.0001"
    whole, decimals = f"{cost_usd:.4f}".split(".")
    return f"${whole}.{decimals.rstrip('0'):0<2}"


def format_amount(number: int) -> str:
    """A number in three digits or so: 950, 12k, 1.2M."""
    if number < 1000:
        return str(number)
    size, unit = (number / 1000, "k") if number < 999_500 else (number / 1_000_000, "M")
    return (f"{size:.0f}" if size >= 9.95 else f"{size:.1f}".removesuffix(".0")) + unit
