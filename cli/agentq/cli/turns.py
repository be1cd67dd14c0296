"""What is told of an agent's run beside what is told of any: who works, in which conversation, and what it has cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from agentq.cli.spending import dollars, spent_words
from agentq.coordinator.life import Run
from agentq.coordinator.run import AgentsWord, Spending
from agentq.coordinator.turn import Budgets, Turn


def word_of(run: Run) -> AgentsWord | None:
    """The last that an attempt of it told."""
    words = (attempt.outcome.agent for attempt in reversed(run.attempts) if attempt.outcome is not None)
    return next((word for word in words if word is not None), None)


def turn_pairs(run: Run) -> Iterator[tuple[str, str]]:
    """For people."""
    word, turn = word_of(run), run.spec.turn or Turn()
    trusts = "trusts its repository" if turn.trust == "repo" else ""
    yield "model", run.model or turn.model or ""
    yield "may", ", ".join(filter(None, (turn.permissions, trusts)))
    yield "account", run.account or turn.account or ""
    yield "conversation", run.agent_session or (word and word.session) or ""
    yield "host", f"{run.host}, where its conversation has to stay" if run.host and run.tied else run.host or ""
    yield "budgets", budget_words(turn.budgets)
    yield "spent", "" if run.spending is None else spent_words(run.spending)
    yield "verdict", word.verdict if word is not None else ""


def denied(word: AgentsWord | None) -> str:
    """The tools that it was not allowed, each with how often; empty if there are none."""
    counts = Counter(word.denials if word is not None else ())
    return ", ".join(f"{tool} ({times} times)" if times > 1 else tool for tool, times in counts.items())


def budget_words(budgets: Budgets | None) -> str:
    """What may be spent, at the most."""
    if budgets is None:
        return ""
    words = (
        "" if budgets.cost_usd is None else dollars(budgets.cost_usd),
        "" if budgets.tokens is None else f"{budgets.tokens:,} tokens",
        "" if budgets.turns is None else f"{budgets.turns:,} turns",
    )
    return ", ".join(filter(None, words))


def turn_record(run: Run) -> dict[str, Any] | None:
    """For programs; None for what is no agent."""
    if run.spec.kind != "agent":
        return None
    word, turn = word_of(run), run.spec.turn or Turn()
    return {
        "name": run.spec.agent,
        "model": run.model or turn.model,
        "account": run.account or turn.account,
        "session": run.spec.session,
        "agent_session": run.agent_session or (word and word.session),
        "host": run.host,
        "stays": run.tied,
        "verdict": word and word.verdict,
        "denials": list(word.denials) if word is not None else [],
        "spent": None if run.spending is None else spent_record(run.spending),
    }


def spent_record(spent: Spending) -> dict[str, Any]:
    return spent.model_dump(mode="json")
