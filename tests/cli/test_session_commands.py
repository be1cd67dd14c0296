"""`agentq session`: conversations, turn by turn."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli.conftest import Answer, Cli, sentence
from cli.test_verbs import once_somebody_waits
from support.world import World

from agentq.coordinator.bounds import PROMPT_BYTES
from agentq.coordinator.model.agent_events import AgentEvent, ResultEvent, SpendingEvent, TextEvent, ToolCallEvent
from agentq.coordinator.model.agent_options import AgentBudgets
from agentq.coordinator.model.lifecycle import OutcomeClass
from agentq.coordinator.model.spec import AgentSpending, Outcome
from agentq.coordinator.runs.logs import LogChunk
from agentq.coordinator.runs.verbs import Claim
from agentq.coordinator.sessions.conversations import AgentConversations
from agentq.coordinator.sessions.verbs import Sessions
from agentq.coordinator.workers.lease import WorkerLease

FIELDS = [
    "name", "agent", "state", "live", "turns_in_line", "last", "model", "cwd", "account", "host", "stays",
    "agent_session", "forked_from", "made_by", "budgets", "spent", "created_at", "used_at", "closed_at",
]  # fmt: skip


@pytest.fixture
def sessions(real: World) -> Sessions:
    return Sessions(real.store)


@pytest.fixture
def worker(real: World) -> WorkerLease:
    """One that has the agent."""
    return real.worker("w1", labels={"agent.claude": "ready", "host": "here"})


def claimed(real: World, worker: WorkerLease) -> Claim:
    (claim,) = worker.claim(1)
    assert real.queue.start([claim]) == [None]
    return claim


def say(real: World, claim: Claim, *agent_events: AgentEvent) -> None:
    real.queue.log(claim, 1, [LogChunk("event", "".join(doing.model_dump_json() + "\n" for doing in agent_events))])


def answer(real: World, worker: WorkerLease, text: str) -> str:
    """The agent takes a turn."""
    claim = claimed(real, worker)
    say(
        real,
        claim,
        ToolCallEvent(tool="Bash", about="make"),
        TextEvent(text=text),
        SpendingEvent(turns=1),
        ResultEvent(ok=True, text=text),
    )
    assert real.queue.finish([(claim, Outcome(exit_code=0))]) == [None]
    return claim.id


def test_a_session_begins_with_what_was_asked_for(cli: Cli, sessions: Sessions, here: Path) -> None:
    made = cli("session", "new", "chat", "--agent", "claude", "--model", "opus", "--max-cost", "5", "--max-turns", "9")

    assert (made.lines, made.code) == (["chat"], 0)
    session = sessions.get("chat")
    assert (session.agent, session.model, session.cwd) == ("claude", "opus", str(here))
    assert session.budgets == AgentBudgets(cost_usd=5.0, turns=9)


def test_one_without_a_name_gets_one(cli: Cli, sessions: Sessions) -> None:
    (name,) = cli("session", "new", "--agent", "claude").lines

    assert name.startswith("claude-")
    assert sessions.get(name).agent == "claude"


def test_a_fork_is_another_session_that_goes_on_from_there(cli: Cli, sessions: Sessions) -> None:
    sessions.new("chat", "claude", cwd="/srv", model="opus")

    assert cli("session", "fork", "chat", "second").lines == ["second"]
    assert cli("session", "new", "third", "--fork", "chat", "--cwd", ".").lines == ["third"]
    forked = [sessions.get(name) for name in ("second", "third")]
    assert [(each.forked_from, each.agent, each.model) for each in forked] == [("chat", "claude", "opus")] * 2
    assert [each.cwd for each in forked] == ["/srv", str(Path.cwd())]


@pytest.mark.usefixtures("worker")
def test_a_turn_is_a_run_of_the_sessions_agent(cli: Cli, real: World, sessions: Sessions) -> None:
    sessions.new("chat", "claude")

    told = cli("session", "send", "chat", "mend", "it", "--permissions", "full", "--max-tokens", "1000")

    assert (told.code, told.err) == (0, "")
    run = real.get(told.out.strip())
    assert (run.spec.kind, run.spec.agent, run.spec.session, run.spec.prompt) == ("agent", "claude", "chat", "mend it")
    assert run.spec.turn is not None
    assert (run.spec.turn.permissions, run.spec.turn.budgets) == ("full", AgentBudgets(tokens=1000))


@pytest.mark.usefixtures("worker")
def test_a_prompt_may_come_in(cli: Cli, real: World, sessions: Sessions, here: Path) -> None:
    sessions.new("chat", "claude")
    (here / "prompt.md").write_text("from\na file")

    turns = [
        cli("session", "send", "chat", "-", stdin="from\nhere"),
        cli("session", "send", "chat", "--prompt-file", "prompt.md"),
    ]

    assert [real.get(turn.out.strip()).spec.prompt for turn in turns] == ["from\nhere", "from\na file"]


def test_the_same_said_twice_under_one_key_is_one_turn(cli: Cli, sessions: Sessions) -> None:
    sessions.new("chat", "claude")
    words = ("session", "send", "chat", "one", "--dedupe-key", "k")

    first, second = cli(*words), cli(*words)

    assert first.out == second.out
    assert second.err == f"agentq: {first.out.strip()} has this dedupe key; nothing new was submitted.\n"


def test_a_busy_session_takes_the_next_turn_and_says_where_it_stands(
    cli: Cli, real: World, sessions: Sessions, worker: WorkerLease
) -> None:
    sessions.new("chat", "claude")
    first = cli("session", "send", "chat", "one").out.strip()
    claimed(real, worker)

    second = cli("session", "send", "chat", "two")
    third = cli("session", "send", "chat", "three")

    assert second.err == f"agentq: turn 2 of chat, after {first}.\n"
    assert third.err == f"agentq: turn 3 of chat, after {second.out.strip()}.\n"
    assert real.state(second.out.strip()) == "blocked"


def test_who_sends_to_a_session_that_no_worker_can_go_on_with_is_told(cli: Cli, sessions: Sessions) -> None:
    sessions.new("chat", "claude")

    told = cli("session", "send", "chat", "one")

    assert told.code == 0
    assert "No worker is registered" in told.err


def test_who_sends_to_a_session_whose_host_is_gone_is_told(
    cli: Cli, real: World, sessions: Sessions, worker: WorkerLease
) -> None:
    sessions.new("chat", "claude")
    cli("session", "send", "chat", "one")
    claim = claimed(real, worker)
    AgentConversations(real.store).bind(claim, "s-1", host="elsewhere", account="", model="", movable=False)
    real.queue.finish([(claim, Outcome(exit_code=0))])

    told = cli("session", "send", "chat", "two")

    assert "elsewhere" in told.err
    assert "agentq session new" in told.err


@pytest.mark.parametrize("how", ["--wait", "--follow"])
def test_whoever_waits_hears_the_answer_and_the_end(
    cli: Cli, real: World, sessions: Sessions, worker: WorkerLease, how: str
) -> None:
    sessions.new("chat", "claude")

    with once_somebody_waits(real, lambda: answer(real, worker, "Hello.")):
        told = cli("session", "send", "chat", "say hello", how)

    assert told.code == 0
    assert ("● Hello." in told.lines) == (how == "--follow")
    assert "completed" in told.out + told.err


def test_the_log_tells_all_turns_in_order(cli: Cli, real: World, sessions: Sessions, worker: WorkerLease) -> None:
    sessions.new("chat", "claude")
    for prompt, text in (("one\x1b[2J\nmore", "First."), ("two", "Second.")):
        cli("session", "send", "chat", prompt)
        answer(real, worker, text)
    cli("session", "send", "chat", "three")
    real.queue.cancel(cli("session", "send", "chat", "four").out.strip(), "not now")
    ids = sorted(run.id for run in sessions.turns("chat").runs)

    assert cli("session", "log", "chat").lines == [
        f"── turn 1  {ids[0]}  completed",
        r"> one\x1b[2J", "> more",
        "● First.", "✓ done", "cost unknown · 1 turn",
        "",
        f"── turn 2  {ids[1]}  completed",
        "> two",
        "● Second.", "✓ done", "cost unknown · 1 turn",
        "",
        f"── turn 3  {ids[2]}  pending",
        "> three",
        "",
        f"── turn 4  {ids[3]}  cancelled",
        "> four",
        "cancelled: not now",
    ]  # fmt: skip
    assert "⚙ Bash  make" in cli("session", "log", "chat", "--all").lines
    records = [json.loads(line) for line in cli("session", "log", "chat", "--json").lines]
    assert [(each["turn"], each["prompt"][:3], each["said"]) for each in records] == [
        (1, "one", ["First."]), (2, "two", ["Second."]), (3, "thr", []), (4, "fou", []),
    ]  # fmt: skip


def test_the_log_is_followed_until_the_line_is_empty(
    cli: Cli, real: World, sessions: Sessions, worker: WorkerLease
) -> None:
    sessions.new("chat", "claude")
    cli("session", "send", "chat", "one")
    cli("session", "send", "chat", "two")

    def work() -> None:
        answer(real, worker, "First.")
        answer(real, worker, "Second.")

    with once_somebody_waits(real, work):
        told = cli("session", "log", "chat", "-f")

    assert [line for line in told.lines if line.startswith("●")] == ["● First.", "● Second."]


def test_a_silent_session_says_how_to_begin(cli: Cli, sessions: Sessions) -> None:
    sessions.new("chat", "claude")

    assert "nothing was said yet; `agentq session send chat" in cli("session", "log", "chat").err


def test_a_session_in_json_has_exactly_these_fields(
    cli: Cli, real: World, sessions: Sessions, worker: WorkerLease
) -> None:
    sessions.new("chat", "claude", budgets=AgentBudgets(cost_usd=2.0))
    cli("session", "send", "chat", "one")
    claim = claimed(real, worker)
    conversations = AgentConversations(real.store)
    conversations.bind(claim, "s-1", host="here", account="work", model="opus", movable=False)
    conversations.spend(claim, AgentSpending(cost_usd=0.5, input_tokens=10, turns=2), {})

    (record,) = [json.loads(line) for line in cli("session", "ls", "--json").lines]

    assert list(record) == FIELDS
    assert (record["live"], record["turns_in_line"], record["agent_session"]) == (claim.id, 1, "s-1")
    assert (record["spent"]["cost_usd"], record["budgets"]["cost_usd"]) == (0.5, 2.0)
    assert json.loads(cli("session", "show", "chat", "--json").out) == record
    shown = cli("session", "show", "chat").out
    for words in (
        "chat  busy",
        "s-1",
        "here, where it has to stay",
        "work",
        "$2.00",
        "$0.50 · 2 turns",
        claim.id,
        "one",
    ):
        assert words in shown


def test_ls_in_a_pipe_has_columns_between_tabs(cli: Cli, sessions: Sessions) -> None:
    sessions.new("first", "claude")
    sessions.new("second", "codex", cwd="/srv")

    rows = [line.split("\t") for line in cli("session", "ls").lines]

    assert [row[:4] + row[5:] for row in rows] == [
        ["second", "codex", "open", "", "", "/srv"],
        ["first", "claude", "open", "", "", ""],
    ]
    assert cli("session", "ls", "--limit", "1").lines[0].split("\t")[0] == "second"


def test_a_closed_session_takes_nothing_more(cli: Cli, real: World, sessions: Sessions) -> None:
    sessions.new("chat", "claude")
    turns = [cli("session", "send", "chat", text).out.strip() for text in ("one", "two")]

    assert cli("session", "close", "chat").lines == ["chat\tclosed\t2 turns go on"]
    assert real.states(turns) == ["pending", "blocked"]
    refused = cli("session", "send", "chat", "three")
    assert sentence(refused) == "The session chat is closed; `agentq session fork chat` goes on from where it is."
    assert refused.code == 5

    assert cli("session", "close", "chat", "--cancel").lines == ["chat\tclosed"]
    assert real.states(turns) == ["cancelled", "cancelled"]


def test_a_turn_that_runs_is_stopped_when_its_session_is_to_be_cancelled(
    cli: Cli, real: World, sessions: Sessions, worker: WorkerLease
) -> None:
    sessions.new("chat", "claude")
    cli("session", "send", "chat", "one")
    claim = claimed(real, worker)

    assert cli("session", "close", "chat").lines == ["chat\tclosed\t1 turn goes on"]
    assert cli("session", "close", "chat", "--cancel").lines == ["chat\tclosed\t1 turn is being stopped"]
    assert real.get(claim.id).stop_at_ms is not None


@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        (
            ["send", "chta", "x"],
            2,
            "There is no session chta; `agentq session ls` shows those that there are. Did you mean chat?",
        ),
        (["show", "chta"], 2, "Did you mean chat?"),
        (["log", "nothing-like-it"], 2, "There is no session nothing-like-it"),
        (["close", "chat", "chta"], 2, "Did you mean chat?"),
        (["fork", "chta"], 2, "Did you mean chat?"),
        (["new", "x", "--fork", "chta"], 2, "Did you mean chat?"),
        (["send", "chat"], 2, "There is no prompt"),
        (["send", "chat", " "], 2, "the prompt is empty"),
        (["send", "chat", "x" * (PROMPT_BYTES + 1)], 2, f"{PROMPT_BYTES} is the most"),
        (["send", "chat", "x", "--prompt-file", "y"], 2, "contradict each other"),
        (["send", "chat", "x", "--permissions", "all"], 2, "--permissions: "),
        (["send", "chat", "x", "--max-cost", "0"], 2, "--max-cost: "),
        (["send", "chat", "x", "--follow", "--json"], 2, "--follow and --json contradict each other"),
        (["new", "chat", "--agent", "claude"], 5, "The session chat exists already"),
        (["new", "x", "--agent", "cluade"], 2, "claude"),
        (["new", "x"], 2, "Say which agent"),
        (["new", "a/b", "--agent", "claude"], 2, "'a/b' is not the name of a session"),
        (["new", "x", "--agent", "codex", "--fork", "chat"], 2, "another agent"),
        pytest.param(
            *(["new", "x", "--agent", "claude", "--cwd", "/no/such"], 2, "--cwd: there is no folder /no/such."),
            marks=pytest.mark.redis_only("the workers of a coordinator may be elsewhere"),
        ),
        (["new", "x", "--agent", "claude", "--max-turns", "-1"], 2, "--max-turns: "),
        (["log", "chat", "--json", "--all"], 2, "--json tells turns"),
        (["ls", "--limit", "0"], 2, "--limit"),
    ],
)
def test_what_cannot_be_is_one_sentence_and_changes_nothing(
    cli: Cli, real: World, sessions: Sessions, words: list[str], code: int, why: str
) -> None:
    sessions.new("chat", "claude")

    with real.unchanged():
        told: Answer = cli("session", *words)

    assert why in sentence(told)
    assert told.code == code


def test_a_turn_for_another_agent_is_refused(cli: Cli, sessions: Sessions, here: Path) -> None:
    sessions.new("chat", "claude")
    spec: dict[str, Any] = {"kind": "agent", "agent": "codex", "prompt": "x", "session": "chat"}
    (here / "runs").write_text(json.dumps(spec) + "\n")

    told = cli("submit", "--from-jsonl", "runs")

    assert sessions.turns("chat").runs == []
    assert "names another agent than the session chat, which is one of claude" in told.err
    assert told.code == 2


def test_a_turn_that_failed_says_why(cli: Cli, real: World, sessions: Sessions, worker: WorkerLease) -> None:
    sessions.new("chat", "claude")
    cli("session", "send", "chat", "one")
    claim = claimed(real, worker)
    real.queue.fail(claim, Outcome(class_=OutcomeClass.AUTH, error="nobody is logged in"))

    assert cli("session", "log", "chat").lines[-1] == "failed: auth: nobody is logged in"
