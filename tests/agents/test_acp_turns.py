"""An agent that speaks the Agent Client Protocol, at work for a real worker."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from support.agent_workers import Agents, word

AGENT = Path(__file__).parent.parent / "support" / "acp_agent.py"


@pytest.fixture
def acp(studio: Agents) -> Agents:
    """The studio, with an agent `scripted` that does what its prompt says and remembers its conversations."""
    kept, asked = studio.crew.folder / "kept", studio.crew.folder / "asked"
    kept.mkdir()
    own = ["--", sys.executable, str(AGENT), "--kept", str(kept), "--log", str(asked), "--able", "load,modes"]
    profile = {"like": '"acp"', "command": '"{python}"', "needs": "[]", "reports_cost": "true"}
    lines = [f"{name} = {value}" for name, value in {**profile, "prompt_args": json.dumps(own)}.items()]
    studio.configure("\n".join(["[agents.scripted]", *lines]))
    return studio


def asked(studio: Agents, method: str) -> list[dict[str, object]]:
    lines = (studio.crew.folder / "asked").read_text().splitlines()
    return [about for about in map(json.loads, lines) if about["method"] == method]


def test_a_turn_over_the_protocol_is_told_and_judged_as_any_other(acp: Agents) -> None:
    acp.worker()

    run = acp.run("TOOL edit a.py", "ASK execute make", "COST 0.25", "SAY all done", agent="scripted")

    assert run.state == "completed"
    assert run.outcome is not None
    assert str(run.outcome.result).endswith("all done")
    assert (word(run).verdict, word(run).session) == ("ok_with_denials", "talk-0")
    assert word(run).spent.cost_usd == 0.25
    assert [doing.type for doing in acp.agent_events(run.id)][:4] == ["began", "tool", "tool_end", "file"]


@pytest.mark.full("takes 1 s")
def test_permissions_reach_the_agent(acp: Agents) -> None:
    acp.worker()

    run = acp.run("ASK execute make", "SAY x", agent="scripted", turn={"permissions": "full"})

    assert word(run).verdict == "ok"
    assert [about["chosen"] for about in asked(acp, "permission")] == ["once"]


@pytest.mark.full("takes 3 s")
def test_another_attempt_goes_on_with_the_conversation_and_pays_its_own(acp: Agents) -> None:
    acp.worker()

    run = acp.run("COST 2", "TOKENS 10 100 1", "SAY so far", "ONCE 3", agent="scripted", retry={"failures": 1})

    assert asked(acp, "load")
    assert word(run).verdict == "ok"
    assert run.spending is not None
    assert (word(run).spent.cost_usd, run.spending.cost_usd) == (2, 4)
    assert word(run).spent.input_tokens == 110


@pytest.mark.full("takes 1 s")
def test_an_order_to_stop_cancels_the_turn_of_the_agent(acp: Agents) -> None:
    acp.worker()
    run = acp.submit("HANG", agent="scripted", stop_grace_ms=10_000)
    acp.until_said(run, "hanging")

    acp.crew.queue.cancel(run)

    assert acp.done(run).state == "cancelled"
    assert len(asked(acp, "cancel")) == 1
