"""Accounts at their limits, logins that are missing, hangs and budgets: what becomes of the run, and of others."""

from __future__ import annotations

import time

import pytest
from support.agent_workers import Agents, word
from support.servers import until

from agentq.coordinator.model.lifecycle import OutcomeClass
from agentq.coordinator.model.retry_policy import RetryPolicy
from agentq.coordinator.queues.limits import Limits

ACCOUNTS = """
[agents.standin.accounts.work]
env = {STANDIN_ACCOUNT = "work"}
[agents.standin.accounts.home]
env = {STANDIN_ACCOUNT = "home"}
"""


@pytest.mark.full("takes 2 s")
def test_an_account_limit_puts_the_run_off_until_the_reset_and_costs_no_attempt(studio: Agents) -> None:
    studio.worker()
    before_ms = time.time() * 1000

    run = studio.submit("AT 1 LIMIT 10m", "SAY done")
    off = studio.reaches(run, "scheduled")
    after_ms = time.time() * 1000

    assert off.due_at_ms is not None
    assert before_ms + 590_000 < off.due_at_ms < after_ms + 660_000
    assert off.failures == off.crashes == 0
    assert off.attempts[-1].outcome is not None
    assert off.attempts[-1].outcome.class_ is OutcomeClass.LIMIT


@pytest.mark.full("takes 6 s")
def test_while_the_account_is_shut_others_wait_for_it_and_say_so_until_it_is_opened(studio: Agents) -> None:
    studio.worker()
    studio.reaches(studio.submit("AT 1 LIMIT 10m", "SAY done"), "scheduled")
    other = studio.submit("SAY done")
    limits = Limits(studio.crew.queue.store)

    until(lambda: "limit" in studio.why(other), "why to tell of the limit")
    assert studio.crew.state(other) == "pending"
    limits.open("account:standin:default")

    assert studio.done(other).state == "completed"


@pytest.mark.full("takes 1 s")
def test_another_agent_goes_on_while_an_account_is_shut(studio: Agents) -> None:
    studio.configure('[agents.other]\nlike = "standin"\n')
    studio.worker()
    studio.reaches(studio.submit("AT 1 LIMIT 10m", "SAY done"), "scheduled")

    assert studio.run("SAY done", agent="other").state == "completed"


@pytest.mark.full("takes 2 s")
def test_a_run_that_brings_a_wrong_key_of_its_own_shuts_nobody_s_account(studio: Agents) -> None:
    studio.configure('[agents.standin.login]\nenv = ["STANDIN_KEY"]\n')
    studio.worker()

    assert studio.run("AUTH", env={"STANDIN_KEY": "wrong"}).state == "failed"

    assert studio.run("SAY done").state == "completed"


@pytest.mark.full("takes 2 s")
def test_accounts_take_turns(studio: Agents) -> None:
    studio.configure(ACCOUNTS)
    studio.worker()

    run = studio.run("AT 1 LIMIT 10m", "REPORT env STANDIN_ACCOUNT")
    after = studio.run("REPORT env STANDIN_ACCOUNT")

    assert run.state == "completed", run.outcome
    assert studio.said(run.id)[-1] == '"home"'
    assert [word(each).account for each in (run, after)] == ["home", "home"]
    assert run.deferrals == run.failures == 0


def test_a_run_that_does_not_want_to_wait_for_the_reset_fails(studio: Agents) -> None:
    studio.worker()

    run = studio.run("LIMIT 10m", turn={"on_limit": "fail"})

    assert run.state == "failed"
    assert word(run).verdict == "limited"


@pytest.mark.full("takes 2 s")
def test_a_throttle_is_a_backoff_and_shuts_nothing(studio: Agents) -> None:
    studio.worker()

    run = studio.run("AT 1 THROTTLE", "SAY done", retry=RetryPolicy(delay_ms=10))

    assert run.state == "completed"
    assert run.deferrals == 1
    assert run.failures == 0
    assert studio.run("SAY done").state == "completed"


@pytest.mark.full("takes 2 s")
@pytest.mark.parametrize("trouble", ["AUTH", "CREDIT"])
def test_a_login_problem_fails_the_run_and_holds_back_the_others(studio: Agents, trouble: str) -> None:
    studio.worker()

    run = studio.run(trouble)
    other = studio.submit("SAY done")

    assert run.state == "failed"
    assert run.outcome is not None
    assert run.outcome.class_ is OutcomeClass.AUTH
    until(lambda: "The account default is shut" in studio.why(other), "why to tell of the account")
    assert studio.crew.state(other) == "pending"


@pytest.mark.full("takes 2 s")
@pytest.mark.parametrize(
    ("line", "how", "class_", "state"),
    [
        ("SILENT", {"turn": {"startup_timeout_ms": 1_000}}, OutcomeClass.STARTUP, "failed"),
        ("HANG", {"silence_timeout_ms": 1_000}, OutcomeClass.SILENCE, "failed"),
        ("SLEEP 60s", {"timeout_ms": 1_000}, OutcomeClass.TIMEOUT, "failed"),
        ("LINGER", {"turn": {"linger_timeout_ms": 500}}, OutcomeClass.LINGER, "completed"),
    ],
)
def test_each_way_to_hang_has_a_class_of_its_own(
    studio: Agents, line: str, how: dict[str, object], class_: OutcomeClass, state: str
) -> None:
    studio.worker()

    run = studio.run(line, **how)

    assert run.state == state
    assert run.outcome is not None
    assert run.outcome.class_ is class_


@pytest.mark.full("takes 2 s")
@pytest.mark.parametrize(
    ("lines", "budgets", "verdict"),
    [
        (("COST 0.20", "SAY more", "HANG"), {"cost_usd": 0.10}, "budget"),
        (("TOKENS 500 600", "SAY more", "HANG"), {"tokens": 1000}, "budget"),
        (("TURNS 5", "HANG"), {"turns": 2}, "max_turns"),
    ],
)
def test_a_budget_ends_the_run_while_it_runs(
    studio: Agents, lines: tuple[str, ...], budgets: dict[str, object], verdict: str
) -> None:
    studio.worker()

    run = studio.run(*lines, turn={"budgets": budgets})

    assert run.state == "failed"
    assert word(run).verdict == verdict
    assert run.outcome is not None
    assert run.outcome.class_ is OutcomeClass.BUDGET


@pytest.mark.full("takes 2 s")
def test_a_cancelled_agent_is_ended_with_all_that_it_started(studio: Agents) -> None:
    studio.worker()
    run = studio.submit("GRANDCHILD", "SAY begun", "STUBBORN", "HANG")
    studio.until_said(run, "begun")

    studio.crew.queue.cancel(run, "enough")
    ended = studio.done(run)

    assert ended.state == "cancelled"
    assert word(ended).session
