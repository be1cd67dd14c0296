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
    yield "model", (word and word.model) or turn.model or ""
    yield "may", ", ".join(filter(None, (turn.permissions, "what the repository brings" * (turn.trust == "repo"))))
    yield "account", (word and word.account) or turn.account or ""
    yield "conversation", (word and word.session) or ""
    yield "budgets", budget_words(turn.budgets)
    if word is not None:
        yield "verdict", word.verdict
        yield "spent", spent_words(word.spent)


def denied(word: AgentsWord | None) -> str:
    """The tools that it was not allowed, each with how often; empty if there are none."""
    counts = Counter(word.denials if word is not None else ())
    return ", ".join(f"{tool} ({times} times)" if times > 1 else tool for tool, times in counts.items())


def budget_words(budgets: Budgets | None) -> str:
    if budgets is None:
        return ""
    return ", ".join(
        filter(
            None,
            (
                budgets.cost_usd is not None and dollars(budgets.cost_usd),
                budgets.tokens is not None and f"{budgets.tokens:,} tokens",
                budgets.turns is not None and f"{budgets.turns:,} turns",
            ),
        )
    )


def turn_record(run: Run) -> dict[str, Any] | None:
    """For programs; None for what is no agent."""
    if run.spec.kind != "agent":
        return None
    word, turn = word_of(run), run.spec.turn or Turn()
    return {
        "name": run.spec.agent,
        "model": (word and word.model) or turn.model,
        "account": (word and word.account) or turn.account,
        "session": run.spec.session,
        "conversation": word and word.session,
        "verdict": word and word.verdict,
        "denials": list(word.denials) if word is not None else [],
        "spent": spent_record(word.spent if word is not None else Spending()),
    }


def spent_record(spent: Spending) -> dict[str, Any]:
    return spent.model_dump(mode="json")
