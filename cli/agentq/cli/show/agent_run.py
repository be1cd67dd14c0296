"""Describes the agent's part of a run: the agent, its conversation and its cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from agentq.cli.show.cost import format_dollars, format_spending
from agentq.coordinator.model.agent_options import AgentBudgets, AgentTurnOptions
from agentq.coordinator.model.spec import AgentOutcome
from agentq.coordinator.public_json.runs import last_agent_outcome
from agentq.coordinator.runs.run_record import RunRecord


def agent_run_pairs(run: RunRecord) -> Iterator[tuple[str, str]]:
    """For people."""
    word, turn = last_agent_outcome(run), run.spec.turn or AgentTurnOptions()
    trusts = "trusts its repository" if turn.trust == "repo" else ""
    yield "model", run.model or turn.model or ""
    yield "may", ", ".join(filter(None, (turn.permissions, trusts)))
    yield "account", run.account or turn.account or ""
    yield "conversation", run.agent_session or (word and word.session) or ""
    yield (
        "host",
        f"{run.host}, where its conversation has to stay" if run.host and run.is_host_pinned else run.host or "",
    )
    yield "budgets", format_budgets(turn.budgets)
    yield "spent", "" if run.spending is None else format_spending(run.spending)
    yield "verdict", word.verdict if word is not None else ""


def format_denied_tools(word: AgentOutcome | None) -> str:
    """The tools that it was not allowed, each with how often; empty if there are none."""
    counts = Counter(word.denials if word is not None else ())
    return ", ".join(f"{tool} ({times} times)" if times > 1 else tool for tool, times in counts.items())


def format_budgets(budgets: AgentBudgets | None) -> str:
    """What may be spent, at the most."""
    if budgets is None:
        return ""
    words = (
        "" if budgets.cost_usd is None else format_dollars(budgets.cost_usd),
        "" if budgets.tokens is None else f"{budgets.tokens:,} tokens",
        "" if budgets.turns is None else f"{budgets.turns:,} turns",
    )
    return ", ".join(filter(None, words))
