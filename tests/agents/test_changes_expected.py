"""Runs that are to change something: whether they did is seen in the folder, not in what the agent says."""

from __future__ import annotations

import shutil

import pytest
from support.agent_workers import Agents, word

from agentq.coordinator.model.lifecycle import OutcomeClass
from agentq.coordinator.model.spec import RetryPolicy

CHANGES = {"expects": "changes"}


@pytest.fixture(autouse=True)
def _repository(studio: Agents) -> None:
    studio.repository()


@pytest.mark.full("takes 2 s")
def test_a_good_end_without_a_change_is_no_output(studio: Agents) -> None:
    studio.worker()

    run = studio.run("SAY all is done", turn=CHANGES)

    assert run.state == "failed"
    assert word(run).verdict == "no_changes"
    assert run.outcome is not None
    assert run.outcome.class_ is OutcomeClass.NO_OUTPUT


@pytest.mark.full("takes 2 s")
def test_a_change_is_one_whatever_was_said_of_it(studio: Agents) -> None:
    studio.worker()

    assert studio.run("WRITE new.txt hello", turn=CHANGES).state == "completed"
    assert studio.run("RUN echo after > there", turn=CHANGES).state == "completed"
    assert studio.run("RUN rm there", turn=CHANGES).state == "completed"


def test_an_agent_may_declare_that_nothing_has_to_be_changed(studio: Agents) -> None:
    studio.worker()

    run = studio.run("""RUN printf '{"no_changes": "it is right"}' > "$AGENTQ_RESULT\"""", turn=CHANGES)

    assert run.state == "completed"
    assert run.outcome is not None
    assert run.outcome.result == {"no_changes": "it is right"}


def test_outside_of_git_a_run_that_is_to_change_something_is_refused_before_it_costs_anything(
    studio: Agents,
) -> None:
    shutil.rmtree(studio.folder / ".git")
    studio.worker()

    run = studio.run("WRITE new.txt hello", turn=CHANGES)

    assert run.state == "failed"
    assert run.outcome is not None
    assert run.outcome.class_ is OutcomeClass.REJECTED
    assert f"git cannot tell what changes in {studio.folder}" in (run.outcome.error or "")
    assert not (studio.folder / "new.txt").exists()


@pytest.mark.full("takes 2 s")
def test_what_an_earlier_attempt_changed_counts(studio: Agents) -> None:
    studio.worker()

    run = studio.run(
        "AT 1 WRITE new.txt hello",
        "AT 1 CRASH",
        "SAY there is nothing left to do",
        turn=CHANGES,
        retry=RetryPolicy(failures=1, delay_ms=0),
    )

    assert run.state == "completed"
    assert len(run.attempts) == 2


def test_a_run_that_need_not_change_anything_is_not_asked_to(studio: Agents) -> None:
    studio.worker()

    assert word(studio.run("SAY that is how it works")).verdict == "ok"
