"""Conversations that go on: after a crash, after the death of the worker, elsewhere, after sleep, in the next turn."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from support.agent_workers import Agents, word
from support.processes import send
from support.servers import until

from agentq.coordinator.model.agent_options import AgentBudgets
from agentq.coordinator.model.retry_policy import RetryPolicy
from agentq.coordinator.runs.run_record import RunRecord

ONCE_MORE = RetryPolicy(failures=1, delay_ms=0)


def verdicts(run: RunRecord) -> list[str]:
    """How the attempts of a run ended."""
    return [each.outcome.agent.verdict for each in run.attempts if each.outcome and each.outcome.agent]


@pytest.mark.full("takes 1 s")
def test_a_second_attempt_goes_on_in_the_conversation_of_the_first(studio: Agents) -> None:
    studio.worker()

    run = studio.run("AT 1 WRITE x.txt hello", "AT 1 CRASH", "REPORT prompts", retry=ONCE_MORE)

    assert run.state == "completed", run.outcome
    assert verdicts(run) == ["killed", "ok"]
    assert len({each.outcome.agent.session for each in run.attempts if each.outcome and each.outcome.agent}) == 1
    assert studio.said(run.id)[-1] == "2"


@pytest.mark.full("takes 10 s")
def test_a_lost_worker_s_turn_goes_on_with_another(studio: Agents) -> None:
    first = studio.worker()
    run = studio.submit("SAY begun", "AT 1 HANG", "REPORT prompts")
    studio.until_said(run, "begun")
    first.kill()
    studio.worker()
    studio.crew.lose(first)

    ended = studio.done(run)

    assert ended.state == "completed", ended.outcome
    assert ended.crashes == 1
    assert studio.said(run)[-1] == "2"


@pytest.mark.full("takes 1 s")
def test_a_conversation_travels_to_where_its_agent_has_never_been(studio: Agents, folder: Path) -> None:
    first = studio.worker(max_runs=1)
    session = studio.sessions.new("talk", "standin", cwd=str(studio.folder))
    assert studio.done(studio.submit("SAY one", session=session.name)).state == "completed"
    first.wait(timeout=60)
    studio.home = folder / "elsewhere"
    studio.worker({"HOSTNAME": "elsewhere"})
    for path in (folder / "agents").rglob("*.jsonl"):
        path.unlink()

    run = studio.run("REPORT prompts", session=session.name)

    assert run.state == "completed", run.outcome
    assert studio.said(run.id) == ["2"]


@pytest.mark.full("takes 12 s")
def test_a_hang_is_gone_on_with_and_not_begun_again(studio: Agents) -> None:
    studio.worker()

    run = studio.run("AT 1 HANG", "REPORT prompts", silence_timeout_ms=10_000, retry=ONCE_MORE)

    assert run.state == "completed", run.outcome
    assert verdicts(run) == ["silence", "ok"]
    assert studio.said(run.id)[-1] == "2"


@pytest.mark.full("takes 1 s")
def test_an_agent_that_wants_to_be_woken_sleeps_without_a_slot(studio: Agents) -> None:
    studio.worker()
    run = studio.submit("WAKE 1m SAY good morning", "SAY good night")
    asleep = studio.reaches(run, "waiting")
    assert asleep.due_at_ms is not None
    assert studio.run("SAY the slot is free").state == "completed"

    studio.crew.queue.wake(run)
    ended = studio.done(run)

    assert ended.state == "completed", ended.outcome
    assert studio.said(run)[-2:] == ["good night", "good morning"]
    assert ended.failures == ended.crashes == 0


@pytest.mark.full("takes 1 s")
def test_a_drained_worker_hands_its_agent_back_and_another_goes_on_with_it(studio: Agents) -> None:
    first = studio.worker(drain_grace="0s")
    run = studio.submit("SAY begun", "AT 1 HANG", "REPORT prompts")
    studio.until_said(run, "begun")
    first.send_signal(signal.SIGTERM)
    first.wait(timeout=60)
    studio.worker()

    ended = studio.done(run)

    assert ended.state == "completed", ended.outcome
    assert ended.crashes == ended.failures == 0
    assert studio.said(run)[-1] == "2"


@pytest.mark.full("takes 1 s")
def test_turns_of_a_session_follow_one_another_in_one_conversation(studio: Agents) -> None:
    studio.worker(slots=3)
    session = studio.sessions.new("talk", "standin", cwd=str(studio.folder))
    turns = [studio.submit(f"SAY {number}", "COST 0.10", "REPORT prompts", session=session.name) for number in range(3)]

    ended = [studio.done(turn) for turn in turns]

    assert [studio.said(turn)[-1] for turn in turns] == ["1", "2", "3"]
    assert [round(word(run).spent.cost_usd or 0, 2) for run in ended] == [0.1, 0.1, 0.1]
    assert round(studio.sessions.get("talk").spent.cost_usd or 0, 2) == 0.3


@pytest.mark.full("takes 1 s")
def test_a_fork_goes_on_from_where_its_source_was_and_leaves_it_alone(studio: Agents) -> None:
    studio.worker()
    studio.sessions.new("talk", "standin", cwd=str(studio.folder))
    studio.run("SAY one", session="talk")
    studio.sessions.new("other", "standin", cwd=str(studio.folder), fork="talk")

    forked = studio.run("REPORT prompts", session="other")
    again = studio.run("REPORT prompts", session="talk")

    assert studio.said(forked.id) == ["2"]
    assert studio.said(again.id) == ["2"]
    assert word(forked).session != word(again).session


@pytest.mark.full("takes 1 s")
def test_a_conversation_that_is_gone_begins_anew_and_says_so(studio: Agents) -> None:
    studio.worker()
    run = studio.submit("SAY begun", "AT 1 HANG", "REPORT prompts", retry=ONCE_MORE)
    studio.until_said(run, "begun")
    for path in studio.home.rglob("*.jsonl"):
        path.unlink()
    send(signal.SIGKILL, _marked(run))

    ended = studio.done(run)

    assert ended.state == "completed", ended.outcome
    assert studio.said(run)[-1] == "1"
    assert "begins anew" in studio.log(run, "note")


@pytest.mark.full("takes 1 s")
def test_a_transcript_that_was_damaged_on_its_way_begins_anew_and_says_so(studio: Agents) -> None:
    studio.worker()
    studio.sessions.new("talk", "standin", cwd=str(studio.folder))
    studio.run("SAY one", session="talk")
    for path in studio.home.rglob("*.jsonl"):
        path.unlink()
    store = studio.crew.queue.store
    key = store.key(studio.sessions.partition("talk"), "session_transcript", "talk")
    assert store.connection.command("SETRANGE", key, 0, "\\\\\\\\")

    run = studio.run("REPORT prompts", session="talk")

    assert run.state == "completed", run.outcome
    assert studio.said(run.id) == ["1"]
    assert "begins anew" in studio.log(run.id, "note")


def test_a_session_s_budget_ends_the_turn_that_exceeds_it_and_refuses_the_next(studio: Agents) -> None:
    studio.worker()
    studio.sessions.new("talk", "standin", cwd=str(studio.folder), budgets=AgentBudgets(cost_usd=0.15))
    assert studio.run("COST 0.10", "SAY one", session="talk").state == "completed"

    exceeding = studio.run("COST 0.10", "SAY two", "HANG", session="talk")
    refused = studio.run("SAY three", session="talk")

    assert [word(run).verdict for run in (exceeding, refused)] == ["budget", "budget"]
    assert refused.outcome is not None
    assert "session has cost $0.20" in (refused.outcome.error or "")


def test_the_processes_that_an_agent_leaves_behind_end_with_its_run(studio: Agents) -> None:
    studio.worker()

    run = studio.run("GRANDCHILD", "SAY done")

    assert run.state == "completed"
    until(lambda: not _marked(run.id), "the grandchild to be gone")


def _marked(run: str) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if run.encode() in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found
