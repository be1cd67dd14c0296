"""Whole turns of the stand-in through a real worker: what comes in, what it does, what is told of it at the end."""

from __future__ import annotations

import json

from support.agent_workers import Agents, word

from agentq.coordinator.model.lifecycle import OutcomeClass


def test_a_prompt_becomes_a_changed_file_and_an_outcome_that_tells_of_it(studio: Agents) -> None:
    studio.worker()

    run = studio.run("THINK about it", "WRITE x.txt hello", "COST 0.12", "TOKENS 1000 20", "SAY all done")

    assert run.state == "completed"
    assert (studio.folder / "x.txt").read_text() == "hello\n"
    assert run.outcome is not None
    assert run.outcome.class_ is OutcomeClass.OK
    assert run.outcome.result == "all done"
    assert word(run).verdict == "ok"
    assert word(run).spent.cost_usd == 0.12
    assert word(run).session
    assert run.spending is not None
    assert run.spending.cost_usd == 0.12


def test_what_an_agent_does_is_told_in_our_words_beside_its_own(studio: Agents) -> None:
    studio.worker()

    run = studio.run("WRITE x.txt hello", "RUN echo from a tool", "DENY WebFetch", "SAY all done")

    kinds = [doing.type for doing in studio.agent_events(run.id)]
    assert kinds[0] == "began"
    assert {"tool", "tool_end", "text", "result"} <= set(kinds)
    own = [json.loads(line) for line in studio.log(run.id, "out").splitlines()]
    assert own[0]["subtype"] == "init"
    assert own[-1]["type"] == "result"
    assert word(run).verdict == "ok_with_denials"
    assert word(run).denials == ("WebFetch",)


def test_an_agent_is_given_no_address_and_no_secret_of_the_worker_s(studio: Agents) -> None:
    studio.worker({"MY_SECRET": "hidden"})

    run = studio.run("REPORT env", env={"MINE": "1"})

    names = json.loads(studio.said(run.id)[0])
    assert "MINE" in names
    assert "AGENTQ_RUN_ID" in names
    assert not {"AGENTQ_URL", "MY_SECRET"} & set(names)


def test_an_error_of_the_agent_s_is_a_failure_whatever_its_exit_code(studio: Agents) -> None:
    studio.worker()

    run = studio.run("FAIL the tests do not pass")

    assert run.state == "failed"
    assert word(run).verdict == "agent_error"
    assert run.outcome is not None
    assert "the tests do not pass" in (run.outcome.error or "")


def test_a_system_prompt_reaches_the_agent_in_a_file(studio: Agents) -> None:
    studio.worker()
    copy = 'RUN cat "$(dirname "$AGENTQ_RESULT")/system-prompt" > told'

    turn = studio.run(copy, "REPORT args", turn={"system_prompt": "Be terse."})

    assert (studio.folder / "told").read_text() == "Be terse."
    assert "--append-system-prompt-file" in studio.log(turn.id, "event")


def test_a_turn_of_a_session_is_told_which(studio: Agents) -> None:
    studio.worker()
    studio.sessions.new("chat", "standin", cwd=str(studio.folder))
    name = 'RUN printf %s "$AGENTQ_SESSION" > told'

    turn, alone = studio.run("REPORT env", name, session="chat"), studio.run("REPORT env")

    assert "AGENTQ_SESSION" in json.loads(studio.said(turn.id)[0])
    assert (studio.folder / "told").read_text() == turn.spec.session
    assert "AGENTQ_SESSION" not in json.loads(studio.said(alone.id)[0])
