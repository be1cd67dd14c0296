"""Whole turns of real agents through the bridge to the Agent Client Protocol, against the stub models."""

from __future__ import annotations

import pytest
from agents.real import RealAgents, processes
from support.agent_workers import word
from support.servers import until

pytestmark = pytest.mark.needs("agents", "namespaces")

MODEL = "gemini-2.5-pro"


def test_a_prompt_becomes_a_changed_file_and_an_outcome(real: RealAgents) -> None:
    real.studio.repository()
    real.worker()

    run = real.run("gemini-acp", "SCN:tool", turn={"expects": "changes", "model": MODEL})

    assert run.state == "completed", run.outcome
    assert (real.studio.folder / "made.txt").read_text() == "made by the stub\n"
    assert run.outcome is not None
    assert run.outcome.result == "I wrote made.txt."
    assert {"tool", "tool_end", "text", "result"} <= {doing.type for doing in real.studio.agent_events(run.id)}


def test_a_second_turn_goes_on_in_the_conversation_of_the_first(real: RealAgents) -> None:
    real.worker()
    real.studio.sessions.new("talk", "opencode-acp", cwd=str(real.studio.folder))

    first = real.run("opencode-acp", "SCN:tool", session="talk")
    second = real.run("opencode-acp", "And now?", session="talk")

    assert (real.studio.folder / "made.txt").read_text() == "made by the stub\n"
    assert second.outcome is not None
    assert second.outcome.result == "Prompt 2 was: And now?"
    assert word(first).session == word(second).session


def test_a_cancelled_one_is_gone_with_its_agent_and_its_tools(real: RealAgents) -> None:
    real.worker()
    run = real.submit("gemini-acp", "SCN:toolsleep 600", turn={"model": MODEL, "permissions": "full"})
    real.process(run, "tail")

    real.studio.crew.queue.cancel(run, "enough")

    assert real.done(run).state == "cancelled"
    until(lambda: not list(processes(run)), "all processes of the run to be gone")
