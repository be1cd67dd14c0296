"""What an agent says may be too long, too deep or absurd: its run has its own end all the same."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest
from support.agent_workers import Agents, word

from agentq.coordinator.bounds import CONVERSATION_FIELD_CHARACTERS, ERROR_CHARACTERS
from agentq.coordinator.model.lifecycle import OutcomeClass

SHELL = '[agents.shell]\nlike = "command"\ncommand = "sh"\nformat = "{format}"\n'


@pytest.fixture
def shell(studio: Agents) -> Agents:
    """With an agent whose prompt is what it prints, or how; it speaks as Claude does."""
    studio.configure(SHELL.format(format="claude") + SHELL.format(format="agentq").replace(".shell]", ".ours]"))
    studio.worker()
    return studio


def printing(*events: Mapping[str, object]) -> str:
    return "\n".join(["cat <<'END'", *(json.dumps(event) for event in events), "END"])


@pytest.mark.full("takes 1 s")
def test_an_error_of_any_length_keeps_its_verdict(shell: Agents) -> None:
    told = {"type": "result", "is_error": True, "result": "credit balance is too low " + "x" * 9_000}

    run = shell.run(printing(told), agent="shell")

    assert run.outcome is not None
    assert word(run).verdict == "credit"
    assert run.outcome.class_ is OutcomeClass.AUTH
    assert len(run.outcome.error or "") == ERROR_CHARACTERS


def test_an_answer_that_no_result_can_hold_is_told_as_words(shell: Agents) -> None:
    deep: object = "bottom"
    for _ in range(400):
        deep = [deep]
    told = {"type": "result", "is_error": False, "result": "all done", "structured_output": deep}

    run = shell.run(printing(told), agent="shell")

    assert run.state == "completed", run.outcome
    assert run.outcome is not None
    assert run.outcome.result == "all done"
    assert "cannot be the result" in shell.log(run.id, "note")


@pytest.mark.full("takes 1 s")
def test_an_agent_that_leaves_itself_a_book_sleeps_all_the_same(shell: Agents) -> None:
    use = {
        "type": "tool_use",
        "id": "1",
        "name": "ScheduleWakeup",
        "input": {"delaySeconds": 60, "prompt": "\u00e9" * 60_000},
    }
    asks = {"type": "assistant", "message": {"id": "m", "content": [use]}}

    run = shell.submit(printing(asks, {"type": "result", "is_error": False, "result": "later"}), agent="shell")

    assert shell.reaches(run, "waiting").due_at_ms is not None


def test_an_id_without_end_is_no_conversation(shell: Agents) -> None:
    began = {"type": "system", "subtype": "init", "session_id": "s" * 100_000, "model": "m" * 100_000}

    run = shell.run(printing(began, {"type": "result", "is_error": False, "result": "all done"}), agent="shell")

    assert run.state == "completed", run.outcome
    assert word(run).session is None
    assert len(word(run).model or "") <= CONVERSATION_FIELD_CHARACTERS
    assert "all done" in shell.log(run.id, "event")


@pytest.mark.full("takes 1 s")
@pytest.mark.parametrize("bill", [-5.0, 1e12])
def test_an_absurd_bill_costs_the_log_nothing(shell: Agents, bill: float) -> None:
    ended = {"type": "result", "is_error": False, "result": "all done", "total_cost_usd": bill}

    run = shell.run(printing(ended), agent="shell")

    assert run.state == "completed", run.outcome
    assert 0 <= (word(run).spent.cost_usd or 0) < 1e9
    assert '"all done"' in shell.log(run.id, "event")
    assert "total_cost_usd" in shell.log(run.id, "out")


@pytest.mark.full("takes 1 s")
def test_totals_that_nobody_asked_for_cost_the_log_nothing(shell: Agents) -> None:
    totals = {f"number{each}": 1.0 for each in range(1_000)}
    told = (
        {"type": "facts", "totals": {**totals, "cost_usd": 0.5}},
        {"type": "result", "ok": True, "text": "all done"},
    )

    run = shell.run(printing(*told), agent="ours")

    assert run.state == "completed", run.outcome
    assert word(run).spent.cost_usd == 0.5
    assert run.spending is not None
    assert run.spending.cost_usd == 0.5
    assert '"all done"' in shell.log(run.id, "event")
