"""Whole turns of the real Codex, Gemini CLI and opencode through a real worker, against the stub models."""

from __future__ import annotations

import signal
import time

import pytest
from agents.real import RealAgents, processes
from support.agent_workers import word
from support.processes import send
from support.servers import until

from agentq.coordinator.model.lifecycle import OutcomeClass
from agentq.coordinator.model.retry_policy import RetryPolicy
from agentq.coordinator.queues.limits import Limits

pytestmark = pytest.mark.needs("agents", "namespaces")

OTHERS = ("codex", "gemini", "opencode")
MODELS = {"gemini": "gemini-2.5-pro"}
ONCE_MORE = RetryPolicy(failures=1, delay_ms=0)


@pytest.mark.parametrize("agent", OTHERS)
def test_two_turns_of_a_conversation_work_and_the_second_knows_the_first(real: RealAgents, agent: str) -> None:
    real.studio.repository()
    real.worker()
    turn = {"model": MODELS.get(agent), "expects": "changes"}
    real.studio.sessions.new("talk", agent, cwd=str(real.studio.folder))

    first = real.run(agent, "SCN:tool", session="talk", turn=turn)
    second = real.run(agent, "And now?", session="talk", turn={"model": MODELS.get(agent)})

    assert first.state == second.state == "completed", (first.outcome, second.outcome)
    assert (real.studio.folder / "made.txt").read_text() == "made by the stub\n"
    assert first.outcome is not None
    assert first.outcome.result == "I wrote made.txt."
    assert second.outcome is not None
    assert second.outcome.result == "Prompt 2 was: And now?"
    assert word(first).session == word(second).session
    assert [word(run).spent.output_tokens for run in (first, second)] == [200, 100]


@pytest.mark.parametrize("agent", OTHERS)
def test_a_wrong_key_is_a_login_problem(real: RealAgents, agent: str) -> None:
    real.worker()

    run = real.run(agent, "SCN:401", turn={"model": MODELS.get(agent)})

    assert run.state == "failed"
    assert run.outcome is not None
    assert run.outcome.class_ is OutcomeClass.AUTH, run.outcome


def test_a_limit_that_codex_tells_in_prose_puts_the_run_off_until_then(real: RealAgents) -> None:
    real.worker()
    before_ms = time.time() * 1000

    run = real.studio.reaches(real.submit("codex", "SCN:quota 7200"), "scheduled")

    assert run.due_at_ms is not None
    assert 7_100_000 < run.due_at_ms - before_ms < 7_300_000


def test_a_quota_whose_end_gemini_tells_puts_the_run_off_until_then(real: RealAgents) -> None:
    real.worker()
    before_ms = time.time() * 1000

    run = real.studio.reaches(real.submit("gemini", "SCN:quota 7200", turn={"model": MODELS["gemini"]}), "scheduled")

    assert run.due_at_ms is not None
    assert 7_100_000 < run.due_at_ms - before_ms < 7_300_000
    assert "met the limit of the account default" in real.studio.why(run.id)
    (gate,) = Limits(real.studio.crew.queue.store).named(["account:gemini:default"])
    assert gate.shut_until_ms == run.due_at_ms


def test_a_limit_of_which_opencode_tells_no_end_shuts_its_account_for_a_while(real: RealAgents) -> None:
    real.worker()

    run = real.studio.reaches(real.submit("opencode", "SCN:quota 7200"), "scheduled")
    other = real.submit("opencode", "SCN:text Hello.")

    assert run.failures == run.crashes == 0
    until(lambda: "The account default is shut" in real.studio.why(other), "why to tell of the account")
    assert real.studio.crew.state(other) == "pending"


@pytest.mark.parametrize("agent", ["gemini", "opencode"])
def test_an_outage_that_the_agent_would_sit_out_puts_the_run_off_and_is_told(real: RealAgents, agent: str) -> None:
    real.worker()

    submitted = real.submit(agent, "SCN:529", turn={"model": MODELS.get(agent)})
    run = real.studio.reaches(submitted, "scheduled", 150)

    assert run.failures == run.crashes == 0
    assert run.attempts[-1].outcome is not None
    assert run.attempts[-1].outcome.agent is not None
    assert run.attempts[-1].outcome.agent.verdict == "throttled"
    assert "overloaded" in (run.attempts[-1].outcome.error or "")
    assert "overloaded" in real.studio.log(run.id, "event")
    assert "was refused by the agent's service" in real.studio.why(run.id)


@pytest.mark.parametrize("agent", ["codex"])
def test_a_killed_agent_is_tried_again_in_its_conversation(real: RealAgents, agent: str) -> None:
    real.worker()
    run = real.submit(agent, "SCN:toolsleep 600", retry=ONCE_MORE, turn={"model": MODELS.get(agent)})
    real.process(run, "tail")
    real.until_kept()

    send(signal.SIGKILL, [pid for pid, words in processes(run) if any(agent in each for each in words[:2])])
    ended = real.done(run)

    assert ended.state == "completed", ended.outcome
    assert ended.outcome is not None
    assert ended.outcome.result == "I go on, with prompt 2."
    until(lambda: not list(processes(run)), "all processes of the run to be gone")


def test_gemini_that_takes_no_notice_of_a_signal_is_ended_all_the_same(real: RealAgents) -> None:
    real.worker()
    run = real.submit("gemini", "SCN:hang", turn={"model": MODELS["gemini"]})
    until(lambda: real.sealed.asked(), "gemini to ask", 40)

    real.studio.crew.queue.cancel(run, "enough")

    assert real.done(run).state == "cancelled"
    assert list(processes(run)) == []
