"""An agent uses agentq in its run: for its own children, and for nothing else."""

from __future__ import annotations

import sys

import pytest
from support.agent_workers import Agents, word

AGENTQ = f"{sys.executable} -m agentq.cli.main"
FULL = {"permissions": "full"}
MAY = ("agent", "command")


@pytest.fixture
def told(studio: Agents) -> Agents:
    """With a worker that has room for children."""
    studio.worker(slots=4)
    return studio


def returned(studio: Agents, run: str) -> list[tuple[bool, str]]:
    """What its tools came to."""
    return [(doing.ok, doing.text) for doing in studio.agent_events(run) if doing.type == "tool_end"]


def test_an_agent_has_a_child_waits_for_it_and_reads_what_it_wrote(told: Agents) -> None:
    run = told.run(
        f"RUN {AGENTQ} submit --child --name mine --wait -- sh -c 'echo from the child' > id",
        f"RUN {AGENTQ} logs $(cut -d ' ' -f 1 id | head -1)",
        f"RUN {AGENTQ} logs -f $(cut -d ' ' -f 1 id | head -1)",
        f"RUN {AGENTQ} show $AGENTQ_RUN_ID --json",
        turn=FULL,
        may_submit=MAY,
    )

    assert [ok for ok, _ in returned(told, run.id)] == [True] * 4, returned(told, run.id)
    child = told.crew.records.get((told.folder / "id").read_text().split()[0])
    assert (child.spec.parent, child.spec.name, child.state) == (run.id, "mine", "completed")
    assert [text.strip() for _, text in returned(told, run.id)][1:3] == ["from the child"] * 2
    assert f'"id":"{run.id}"' in returned(told, run.id)[3][1].replace(" ", "")


@pytest.mark.full("takes 1 s")
def test_an_agent_ends_its_child_and_hears_of_it(told: Agents) -> None:
    run = told.run(
        f"RUN {AGENTQ} submit --child -- sleep 1000 > id",
        f"RUN {AGENTQ} cancel $(cat id) --reason enough",
        f"RUN {AGENTQ} wait $(cat id) --timeout 30s; echo exit $?",
        turn=FULL,
        may_submit=MAY,
    )

    assert "cancelled" in returned(told, run.id)[2][1]
    assert "exit 1" in returned(told, run.id)[2][1]


@pytest.mark.full("takes 2 s")
@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("ls", "not for an agent in its run. An agent may submit children"),
        ("submit -- true", "only its children can be submitted; add --child"),
        ("submit --child --queue other -- true", "it is in the queue default, not in other"),
        ("retry run_0000000000000000000000", "not for an agent in its run"),
        ("show run_1m7rj8sjp00wj79tdsdf3s2", "is neither"),
        ("worker --burst", "not for an agent in its run"),
        ("down", "not for an agent in its run"),
    ],
)
def test_what_an_agent_may_not_do_is_told_in_a_sentence(told: Agents, words: str, sentence: str) -> None:
    run = told.run(f"RUN {AGENTQ} {words}; echo exit $?", turn=FULL, may_submit=MAY)

    (answer,) = (text for _, text in returned(told, run.id))
    assert sentence in answer
    assert f"exit {2 if 'add --child' in sentence else 4}" in answer
    assert [each.id for each in told.crew.records.all()] == [run.id]


@pytest.mark.full("takes 2 s")
def test_an_agent_starts_no_commands_by_having_children_unless_its_submitter_says_so(told: Agents) -> None:
    run = told.run(f"RUN {AGENTQ} submit --child -- true")

    assert "its may_submit would have to name command" in returned(told, run.id)[0][1]


@pytest.mark.full("takes 1 s")
def test_the_token_is_seen_by_nobody(told: Agents) -> None:
    run = told.run("RUN echo $AGENTQ_TOKEN", turn=FULL)

    assert returned(told, run.id)[0][1].strip() == "[redacted]"


def test_an_agent_declares_that_nothing_has_to_be_changed(told: Agents) -> None:
    told.repository()
    run = told.run(f'RUN {AGENTQ} declare no-changes "It is right as it is."', turn={**FULL, "expects": "changes"})

    assert word(run).verdict == "ok"
    assert run.outcome is not None
    assert run.outcome.result == {"no_changes": "It is right as it is."}
