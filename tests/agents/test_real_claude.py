"""Whole turns of the real Claude Code through a real worker, against the stub models."""

from __future__ import annotations

import os
import signal
import time

import pytest
from agents.real import RealAgents, processes
from support.agent_workers import word
from support.servers import until

from agentq.coordinator.model.lifecycle import OutcomeClass
from agentq.coordinator.model.retry_policy import RetryPolicy

pytestmark = pytest.mark.needs("agents", "namespaces")

A_REQUEST_USD = 0.006
"""What Claude takes one request to the stub to cost."""
ONCE_MORE = RetryPolicy(failures=1, delay_ms=0)


def test_a_prompt_becomes_a_tool_s_work_a_changed_file_and_an_outcome(real: RealAgents) -> None:
    real.studio.repository()
    real.worker()

    run = real.run("claude", "SCN:tool", turn={"expects": "changes"})

    assert run.state == "completed", run.outcome
    assert (real.studio.folder / "made.txt").read_text() == "made by the stub\n"
    assert run.outcome is not None
    assert run.outcome.result == "I wrote made.txt."
    assert word(run).verdict == "ok"
    assert word(run).spent.cost_usd == pytest.approx(2 * A_REQUEST_USD)
    assert word(run).spent.output_tokens == 200
    kinds = [doing.type for doing in real.studio.agent_events(run.id)]
    assert kinds[0] == "began"
    assert {"tool", "tool_end", "file", "text", "spent", "result"} <= set(kinds)
    assert "other" not in kinds
    assert [asked["key"] for asked in real.sealed.asked()] == ["stub", "stub"]


def test_a_second_turn_goes_on_in_the_same_conversation_and_costs_only_its_own(real: RealAgents) -> None:
    real.worker()
    real.studio.sessions.new("talk", "claude", cwd=str(real.studio.folder))

    first = real.run("claude", "SCN:tool", session="talk")
    second = real.run("claude", "And now?", session="talk")

    assert second.outcome is not None
    assert second.outcome.result == "Prompt 2 was: And now?"
    assert word(first).session == word(second).session
    assert word(second).spent.cost_usd == pytest.approx(A_REQUEST_USD)
    assert real.studio.sessions.get("talk").spent.cost_usd == pytest.approx(3 * A_REQUEST_USD)


def test_a_fork_is_another_conversation_that_knows_the_first(real: RealAgents) -> None:
    real.worker()
    real.studio.sessions.new("talk", "claude", cwd=str(real.studio.folder))
    first = real.run("claude", "one", session="talk")
    real.studio.sessions.new("other", "claude", cwd=str(real.studio.folder), fork="talk")

    forked = real.run("claude", "two", session="other")

    assert forked.outcome is not None
    assert forked.outcome.result == "Prompt 2 was: two"
    assert word(forked).session != word(first).session


def test_a_killed_agent_is_tried_again_in_its_conversation_and_its_tool_is_not_left_behind(
    real: RealAgents,
) -> None:
    real.worker()
    run = real.submit("claude", "SCN:toolsleep 600", retry=ONCE_MORE)
    tool = real.process(run, "tail")
    real.until_kept()

    os.kill(real.process(run, "stream-json"), signal.SIGKILL)
    ended = real.done(run)

    assert ended.state == "completed", ended.outcome
    assert ended.outcome is not None
    assert ended.outcome.result == "I go on, with prompt 2."
    assert ended.failures == 1
    until(lambda: not os.path.exists(f"/proc/{tool}"), "the tool to be gone")
    assert list(processes(run)) == []


def test_a_killed_worker_s_turn_is_gone_on_with_by_another(real: RealAgents) -> None:
    first = real.worker()
    run = real.submit("claude", "SCN:toolsleep 600")
    real.process(run, "tail")
    real.until_kept()

    os.kill(first.pid, signal.SIGKILL)
    real.worker()
    ended = real.done(run)

    assert ended.state == "completed", ended.outcome
    assert ended.crashes == 1
    assert ended.outcome is not None
    assert ended.outcome.result == "I go on, with prompt 2."
    until(lambda: not list(processes(run)), "all processes of the run to be gone")


def test_a_subscription_s_limit_puts_the_run_off_until_its_reset(real: RealAgents) -> None:
    real.worker(subscription=True)
    before_ms = time.time() * 1000

    run = real.studio.reaches(real.submit("claude", "SCN:quota 3600"), "scheduled")

    assert run.due_at_ms is not None
    assert 3_590_000 < run.due_at_ms - before_ms < 3_720_000
    assert run.failures == run.crashes == 0
    assert run.attempts[-1].outcome is not None
    assert run.attempts[-1].outcome.class_ is OutcomeClass.LIMIT
    other = real.submit("claude", "hello")
    until(lambda: "limit" in real.studio.why(other), "why to tell of the limit")


def test_a_wrong_key_fails_the_run_as_a_login_problem(real: RealAgents) -> None:
    real.worker()

    run = real.run("claude", "SCN:401")

    assert run.state == "failed"
    assert run.outcome is not None
    assert run.outcome.class_ is OutcomeClass.AUTH
    assert word(run).verdict == "auth"


def test_a_wish_to_be_woken_ends_the_process_and_is_kept_by_us(real: RealAgents) -> None:
    real.worker()
    run = real.submit("claude", "SCN:wakeup 60 SCN:text It is done.")

    asleep = real.studio.reaches(run, "waiting")
    assert asleep.due_at_ms is not None
    until(lambda: not list(processes(run)), "the process to be gone")
    real.studio.crew.queue.wake(run)
    ended = real.done(run)

    assert ended.state == "completed", ended.outcome
    assert ended.outcome is not None
    assert ended.outcome.result == "It is done."


def test_what_it_may_not_do_is_told_and_not_done(real: RealAgents) -> None:
    real.worker()

    run = real.run("claude", "SCN:tool", turn={"permissions": "read"})

    assert run.state == "completed"
    assert word(run).verdict == "ok_with_denials"
    assert not (real.studio.folder / "made.txt").exists()


def test_its_budgets_end_a_loop(real: RealAgents) -> None:
    real.worker()

    money = real.run("claude", "SCN:toolloop", turn={"budgets": {"cost_usd": 0.02}})
    turns = real.run("claude", "SCN:toolloop", turn={"budgets": {"turns": 3}})

    assert [word(money).verdict, word(turns).verdict] == ["budget", "max_turns"]


def test_a_cancelled_agent_is_gone_with_its_tools(real: RealAgents) -> None:
    real.worker()
    run = real.submit("claude", "SCN:toolsleep 600")
    real.process(run, "tail")

    real.studio.crew.queue.cancel(run, "enough")

    assert real.done(run).state == "cancelled"
    until(lambda: not list(processes(run)), "all processes of the run to be gone")
