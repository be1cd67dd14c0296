"""What a conversation with Claude Code costs: some versions bill the conversation, some each process."""

from __future__ import annotations

from typing import Any

import pytest
from support.agent_output import read
from worker.agents.test_format_claude import GOOD, INIT, failed, text

from agentq.worker.agents.reader import PriorConversation


def billed(cost: float, read: int, wrote: int, id_: str = "m1") -> list[dict[str, Any]]:
    """A turn that reads 1,000 tokens and writes 100, and a result with these totals."""
    usage = {"input_tokens": 1_000, "output_tokens": 100}
    message = {"type": "assistant", "message": {"id": id_, "content": [text("Yes.")], "usage": usage}}
    models = {"claude-opus-5-5": {"inputTokens": read, "outputTokens": wrote, "costUSD": cost}}
    return [INIT, message, {**GOOD, "total_cost_usd": cost, "usage": usage, "modelUsage": models}]


@pytest.mark.parametrize("bills", ["each process", "the conversation", "first the one, then the other"])
def test_every_turn_of_a_conversation_costs_what_it_costs_whichever_totals_the_version_tells(bills: str) -> None:
    totals: dict[str, float] = {}
    costs, tokens, sums = [], [], []
    for turn in (1, 2, 3, 4):
        whole = turn if bills == "the conversation" or (turn == 4 and bills != "each process") else 1
        reading = read(
            "claude", billed(0.006 * whole, 1_000 * whole, 100 * whole), before=PriorConversation(totals=totals)
        )
        totals = dict(reading.facts.totals)
        costs.append(reading.facts.spent.cost_usd)
        tokens.append(reading.facts.spent.input_tokens)
        sums.append(totals.get("cost_usd", totals.get("paid_usd")))

    assert costs == pytest.approx([0.006] * 4)
    assert tokens == [1_000] * 4
    assert sums == pytest.approx([0.006, 0.012, 0.018, 0.024])
    assert totals["input_tokens"] == 4_000


def test_a_bill_of_a_process_that_fails_before_it_asks_its_model_is_nothing() -> None:
    models = {"claude-opus-5-5": {"inputTokens": 0, "outputTokens": 0}}
    before = PriorConversation(totals={"cost_usd": 0.5, "input_tokens": 900, "cached_tokens": 0, "output_tokens": 90})
    reading = read("claude", [INIT, {**failed("no"), "total_cost_usd": 0, "modelUsage": models}], before=before)

    assert (reading.facts.spent.cost_usd, reading.facts.spent.input_tokens) == (0, 0)
