"""What is told of an agent's run beside what is told of any: who works, in which conversation, and what it has cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from agentq.cli.spending import dollars, spent_words
from agentq.coordinator.life import Run
from agentq.coordinator.run import AgentsWord
from agentq.coordinator.shapes import word_of
from agentq.coordinator.turn import Budgets, Turn


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
