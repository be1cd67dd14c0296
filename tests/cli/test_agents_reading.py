"""What the commands tell of agents: the log as a story, the record of a run, lists."""

from __future__ import annotations

import json

from cli.conftest import Cli, sentence
from cli.test_verbs import once_somebody_waits
from support.world import World

from agentq.coordinator.model.agent_events import (
    AnyAgentEvent,
    ResultEvent,
    SpendingEvent,
    TextEvent,
    ToolCallEvent,
    ToolResultEvent,
)
from agentq.coordinator.model.agent_options import AgentBudgets, AgentTurnOptions
from agentq.coordinator.model.lifecycle import OutcomeClass
from agentq.coordinator.model.spec import AgentOutcome, AgentSpending, Outcome
from agentq.coordinator.runs.logs import LogChunk
from agentq.coordinator.runs.verbs import Claim
from agentq.coordinator.sessions.conversations import AgentConversations
from agentq.coordinator.sessions.verbs import Sessions

DOINGS: list[AnyAgentEvent] = [
    ToolCallEvent(id="1", tool="Bash", about="make test"),
    ToolResultEvent(id="1", text="3 passed"),
    TextEvent(text="All green.\x1b[2J"),
    SpendingEvent(cost_usd=0.12, turns=3, input_tokens=11_000, output_tokens=900),
    ResultEvent(ok=True, text="All green.\x1b[2J"),
]
TEXT = "".join(doing.model_dump_json() + "\n" for doing in DOINGS)
CHUNKS = [
    LogChunk("out", '{"raw": 1}\n'),
    LogChunk("event", TEXT[:40]),
    LogChunk("err", "hm\n"),
    LogChunk("event", TEXT[40:]),
]
STORY = ["⚙ Bash  make test", "  ↳ ok  3 passed", r"● All green.\x1b[2J", "✓ done", "$0.12 · 3 turns · 12k tokens"]
WORD = AgentOutcome(
    verdict="ok_with_denials", session="s-1", model="opus", account="work", denials=("WebFetch", "Bash", "Bash"),
    spent=AgentSpending(cost_usd=0.12, turns=3, input_tokens=11_000, output_tokens=900), duration_ms=9,
)  # fmt: skip


def held(real: World, **fields: object) -> Claim:
    """A run of an agent in the hands of a worker that has it."""
    run = real.submit(**({"kind": "agent", "agent": "claude", "prompt": "Mend\n it.", "argv": ()} | fields))
    (claim,) = real.worker("w1", labels={"agent.claude": "ready"}).claim(1)
    assert claim.id == run
    assert real.queue.start([claim]) == [None]
    return claim


def told(real: World) -> str:
    claim = held(real)
    real.queue.log(claim, 1, CHUNKS)
    return claim.id


def test_the_newest_lines_of_what_an_agent_does_come_with_their_times(cli: Cli, real: World) -> None:
    lines = cli("logs", told(real), "-n", "2", "--timestamps").lines

    assert [line.split("  ", 1)[1] for line in lines] == STORY[-2:]


def test_the_log_of_an_agent_is_a_story(cli: Cli, real: World) -> None:
    answer = cli("logs", told(real))

    assert answer.lines == STORY
    assert answer.err == "hm\n"


def test_raw_prints_the_agents_own_lines(cli: Cli, real: World) -> None:
    run = told(real)

    assert cli("logs", run, "--raw").out == '{"raw": 1}\n'
    records = [json.loads(line) for line in cli("logs", run, "--raw", "--json").lines]
    assert [(each["stream"], each["text"]) for each in records] == [("out", '{"raw": 1}\n'), ("err", "hm\n")]


def test_in_json_doings_are_objects(cli: Cli, real: World) -> None:
    records = [json.loads(line) for line in cli("logs", told(real), "--json").lines]

    assert [each["doing"] for each in records if "doing" in each] == [doing.model_dump(mode="json") for doing in DOINGS]
    assert [each["text"] for each in records if "text" in each] == ["hm\n"]
    assert {each["stream"] for each in records} == {"err", "event"}


def test_a_command_is_logged_as_ever(cli: Cli, real: World) -> None:
    claim = real.held("w1", started=True)
    real.queue.log(claim, 1, [LogChunk("out", '{"type":"text","text":"hi"}\n')])

    assert cli("logs", claim.id).out == cli("logs", claim.id, "--raw").out == '{"type":"text","text":"hi"}\n'


def test_a_file_is_not_raw(cli: Cli) -> None:
    assert "--full prints a file as it is" in sentence(cli("logs", "--full", "--raw", "run_x"))


def test_it_is_told_live_until_the_run_has_ended(cli: Cli, real: World) -> None:
    claim = held(real)
    real.queue.log(claim, 1, CHUNKS[:2])

    def end() -> None:
        real.queue.log(claim, 2, CHUNKS[2:])
        real.queue.finish([(claim, Outcome(exit_code=0, agent=WORD))])

    with once_somebody_waits(real, end):
        answer = cli("logs", "-f", claim.id)

    assert answer.lines == STORY


def test_show_tells_who_works_in_which_conversation_and_what_it_cost(cli: Cli, real: World) -> None:
    claim = held(
        real, turn=AgentTurnOptions(permissions="full", trust="repo", budgets=AgentBudgets(cost_usd=5.0, turns=20))
    )
    conversations = AgentConversations(real.store)
    conversations.bind(claim, "s-1", host="here", account="work", model="opus", movable=True)
    conversations.spend(claim, WORD.spent, {})
    real.queue.log(claim, 1, CHUNKS)
    real.queue.finish([(claim, Outcome(exit_code=0, agent=WORD, tail='{"raw": 1}'))])

    shown = cli("show", claim.id).out

    pairs = {line[2:].partition("  ")[0]: line.rpartition("  ")[2] for line in shown.splitlines()}
    expected = {
        "agent": "claude", "prompt": "Mend it.", "model": "opus", "may": "full, trusts its repository",
        "account": "work", "conversation": "s-1", "host": "here", "budgets": "$5.00, 20 turns",
        "spent": "$0.12 · 3 turns · 12k tokens",
        "verdict": "ok_with_denials",
    }  # fmt: skip
    assert {name: pairs.get(name) for name in expected} == expected
    assert "  It was not allowed to use WebFetch, Bash (2 times).\n" in shown
    assert shown.endswith("  the last it said and did\n" + "".join(f"    {line}\n" for line in STORY))
    assert "agent.claude" not in shown
    assert '"raw"' not in shown
    record = json.loads(cli("show", claim.id, "--json").out)["agent"]
    assert record == {
        "name": "claude", "model": "opus", "account": "work", "session": None, "agent_session": "s-1", "host": "here",
        "stays": False, "verdict": "ok_with_denials", "denials": ["WebFetch", "Bash", "Bash"],
        "spent": WORD.spent.model_dump(),
    }  # fmt: skip


def test_an_agent_that_has_not_begun_is_shown_by_what_was_asked(cli: Cli, real: World) -> None:
    run = real.submit(
        kind="agent", agent="claude", prompt="x", argv=(), turn=AgentTurnOptions(model="opus", account="work")
    )

    shown = cli("show", run).out

    assert "model      opus" in shown
    assert "verdict" not in shown
    record = json.loads(cli("ls", "--json").out)["agent"]
    assert (record["model"], record["verdict"], record["spent"]) == ("opus", None, None)


def test_an_agent_that_told_nothing_is_shown_by_the_last_that_it_wrote(cli: Cli, real: World) -> None:
    claim = held(real)
    real.queue.finish([(claim, Outcome(exit_code=0, tail="no such option\n"))])

    assert cli("show", claim.id).out.endswith("  the last it wrote\n    no such option\n")


def test_lists_show_the_first_words_of_the_prompt_on_one_line(cli: Cli, real: World) -> None:
    real.submit(kind="agent", agent="claude", prompt="Mend\n\n  the tests " + "x" * 500, argv=(), session=None)

    (line,) = cli("ls").lines

    what = line.split("\t")[-1]
    assert what.startswith("claude: Mend the tests xxx")
    assert len(what) <= 200


def test_ls_finds_the_turns_of_a_session(cli: Cli, real: World) -> None:
    Sessions(real.store).new("chat", "claude")
    turns = [real.submit(kind="agent", agent="claude", prompt="x", argv=(), session="chat") for _ in range(2)]
    real.submit()
    for run in reversed(turns):
        real.queue.cancel(run)

    assert [line.split("\t")[0] for line in cli("ls", "--session", "chat").lines] == sorted(turns, reverse=True)


def test_how_an_agent_ended_is_told_by_its_verdict_not_by_an_exit_code(cli: Cli, real: World) -> None:
    """An agent that changed nothing exits with 0, and one that was ended with 143; neither says anything."""
    word = AgentOutcome(verdict="no_changes", spent=AgentSpending())
    claim = held(real)
    outcome = Outcome(class_=OutcomeClass.NO_OUTPUT, exit_code=0, error="there are no changes", agent=word)
    real.queue.fail(claim, outcome)

    assert cli("ls").lines[0].split("\t")[1:3] == ["failed", "no_changes"]
    assert cli("wait", claim.id).lines == [f"{claim.id}\tfailed\tno_changes"]
    assert cli("show", claim.id).lines[0] == f"{claim.id}  failed, no_changes"


def test_an_agent_that_did_it_has_completed_and_that_is_all(cli: Cli, real: World) -> None:
    claim = held(real)
    real.queue.finish([(claim, Outcome(class_=OutcomeClass.OK, exit_code=0, agent=AgentOutcome(verdict="ok")))])

    assert cli("wait", claim.id).lines == [f"{claim.id}\tcompleted"]


def test_an_agent_that_was_cancelled_was_not_interrupted_besides(cli: Cli, real: World) -> None:
    claim = held(real)
    real.queue.cancel(claim.id)
    real.queue.fail(
        claim, Outcome(class_=OutcomeClass.CANCELLED, exit_code=143, agent=AgentOutcome(verdict="interrupted"))
    )

    assert cli("wait", claim.id).lines == [f"{claim.id}\tcancelled"]


def test_a_command_that_ran_too_long_is_told_as_that_not_by_the_exit_code_of_its_end(cli: Cli, real: World) -> None:
    claim = held(real, kind="command", agent=None, prompt=None, argv=("sleep", "9"))
    real.queue.fail(claim, Outcome(class_=OutcomeClass.TIMEOUT, exit_code=143))

    assert cli("wait", claim.id).lines == [f"{claim.id}\tfailed\ttimeout"]
