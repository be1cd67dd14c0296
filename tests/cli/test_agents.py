"""`agentq agents`, and `agentq submit --agent`: from what is typed to the spec."""

from __future__ import annotations

import json
import os
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from cli.conftest import Cli, sentence
from support.world import World

from agentq.coordinator.bounds import PROMPT_BYTES
from agentq.worker.agents.profiles.profile import Profile
from agentq.worker.agents.profiles.registry import BUILT_IN_SOURCE, ProfileRegistry

TURNS: dict[str, tuple[list[str], dict[str, Any]]] = {
    "nothing more": ([], {}),
    "model": (["--model", "opus"], {"turn": {"model": "opus"}}),
    "permissions": (["--permissions", "full"], {"turn": {"permissions": "full"}}),
    "children": (
        ["--may-submit", "agent:codex", "--may-submit", "command"],
        {"may_submit": ["agent:codex", "command"]},
    ),
    "trust": (["--trust", "repo"], {"turn": {"trust": "repo"}}),
    "account": (["--account", "work"], {"turn": {"account": "work"}}),
    "budgets": (
        ["--max-cost", "$2.50", "--max-tokens", "500k", "--max-turns", "30"],
        {"turn": {"budgets": {"cost_usd": 2.5, "tokens": 500_000, "turns": 30}}},
    ),
    "changes": (["--expect", "changes"], {"turn": {"expects": "changes"}}),
    "limits": (["--on-limit", "fail"], {"turn": {"on_limit": "fail"}}),
    "timeouts": (
        ["--startup", "1m", "--linger", "5s", "--silence", "10m", "--timeout", "2h"],
        {
            "turn": {"startup_timeout_ms": 60_000, "linger_timeout_ms": 5_000},
            "silence_timeout_ms": 600_000,
            "timeout_ms": 7_200_000,
        },
    ),
    "what every run has": (["--queue", "night", "--priority", "0"], {"queue": "night", "priority": 0}),
}


def spec_of(cli: Cli, run: str) -> dict[str, Any]:
    spec: dict[str, Any] = json.loads(cli("show", run, "--json").out)["spec"]
    return spec


@pytest.fixture
def settings(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A settings file that was named."""
    monkeypatch.setenv("AGENTQ_CONFIG", str(here / "agentq.toml"))
    return here / "agentq.toml"


@pytest.fixture
def claude(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program of that name on a PATH of its own."""
    folder = here.parent / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}/bin{os.pathsep}/usr/bin")
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CONFIG_DIR"):
        monkeypatch.delenv(name, raising=False)
    return program(folder / "claude", "echo '2.1.327 (Claude Code)'")


def program(path: Path, script: str) -> Path:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(("options", "expected"), TURNS.values(), ids=TURNS.keys())
def test_a_prompt_becomes_a_run_of_an_agent(cli: Cli, here: Path, options: list[str], expected: dict[str, Any]) -> None:
    answer = cli("submit", "--agent", "claude", *options, "Fix the failing test")

    assert answer.code == 0, answer.err
    assert spec_of(cli, answer.out.strip()) == {
        "kind": "agent",
        "agent": "claude",
        "prompt": "Fix the failing test",
        "cwd": str(here),
        "demands": {"agent.claude": "ready"},
        **expected,
    }


def test_a_prompt_may_be_words_a_file_or_what_comes_in(cli: Cli, here: Path) -> None:
    (here / "task.md").write_text("# Do this\n--wait\n")
    submit = ("submit", "--agent", "claude")

    prompts = [
        spec_of(cli, cli(*submit, *words, stdin="-rf is no option here").out.strip())["prompt"]
        for words in (["Fix", "the", "test"], ["--prompt-file", "task.md"], ["-"], ["--prompt-file", "-"])
    ]

    piped = "-rf is no option here"
    assert prompts == ["Fix the test", "# Do this\n--wait\n", piped, piped]


def test_a_turn_of_a_conversation_has_the_folder_of_that_unless_it_names_one(cli: Cli) -> None:
    cli("session", "new", "parser", "--agent", "claude")

    run = cli("submit", "--agent", "claude", "--session", "parser", "Go on").out.strip()

    spec = spec_of(cli, run)
    assert spec["session"] == "parser"
    assert "cwd" not in spec


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (
            ["--agent", "cladue", "x"],
            "There is no agent 'cladue'; did you mean claude? `agentq agents` shows them all.",
        ),
        (["--agent", "command", "x"], "The agent command is only a base for others"),
        (["--agent", "a b", "x"], "--agent: 'a b' is not a name"),
        (["--agent", "claude"], "There is no prompt"),
        (["--agent", "claude", " \n"], "is empty"),
        (["--agent", "claude", "x" * (PROMPT_BYTES + 1)], f"{PROMPT_BYTES} is the most"),
        (["--agent", "claude", "--prompt-file", "nowhere", ""], "contradict each other"),
        (["--agent", "claude", "Fix it", "--wait"], "--wait comes after the prompt"),
        (["--agent", "claude", "--may-submit", "all", "x"], "--may-submit"),
        (["--agent", "claude", "--permissions", "all", "x"], "--permissions: it should be 'read', 'edit' or 'full'"),
        (["--agent", "claude", "--trust", "me", "x"], "--trust: it should be 'none' or 'repo'"),
        (["--agent", "claude", "--model", "", "x"], "--model: it should be a model's name"),
        (["--agent", "claude", "--model", "-x", "x"], "--model: it should be a model's name"),
        (["--agent", "claude", "--expect", "wonders", "x"], "--expect: it should be 'anything' or 'changes'"),
        (["--agent", "claude", "--on-limit", "cry", "x"], "--on-limit: it should be 'defer' or 'fail'"),
        (["--agent", "claude", "--account", "a b", "x"], "--account: 'a b' is not a name"),
        (["--agent", "claude", "--max-cost", "nan", "x"], "--max-cost: 'nan' is not an amount in dollars"),
        (["--agent", "claude", "--max-cost", "0", "x"], "--max-cost: it should be greater than 0"),
        (["--agent", "claude", "--max-tokens", "many", "x"], "--max-tokens: 'many' is not a number of tokens"),
        (["--agent", "claude", "--max-turns", "0", "x"], "--max-turns: it should be greater than 0"),
        (["--agent", "claude", "--startup", "soon", "x"], "--startup: 'soon' is not a duration"),
        (["--agent", "claude", "--function", "a:b", "x"], "--function and --agent contradict each other"),
        (["--agent", "claude", "--stdin", "f", "x"], "--stdin and --agent contradict each other"),
        (["--model", "opus", "--", "true"], "--model means nothing without --agent"),
        (["--max-cost", "2", "--", "true"], "--max-cost means nothing without --agent"),
    ],
)
def test_what_is_wrong_with_a_prompt_is_one_sentence_and_changes_nothing(cli: Cli, argv: list[str], said: str) -> None:
    answer = cli("submit", *argv)

    assert answer.code == 2
    assert said in sentence(answer)
    assert cli("ls").out == ""


def test_an_agent_that_only_a_worker_knows_is_taken(cli: Cli, real: World) -> None:
    real.worker("w1", labels={"agent.theirs": "ready"})

    answer = cli("submit", "--agent", "theirs", "Fix it")

    assert (answer.code, answer.err) == (0, "")


def test_an_agent_that_no_worker_has_is_taken_and_said_at_once(cli: Cli, real: World) -> None:
    real.worker("w1", labels={"agent.codex": "ready"})

    answer = cli("submit", "--agent", "claude", "--json", "Fix it")

    assert answer.code == 0
    assert json.loads(answer.out)["unmet"] == ["agent.claude=ready"]
    assert "No worker registered for its queue, default, has the agent claude." in answer.err
    assert cli("submit", "--agent", "codex", "Fix it").err == ""


def test_an_agent_can_be_asked_again_and_again(cli: Cli) -> None:
    added = ("schedule", "add", "tidy", "--cron", "@weekly", "--agent", "claude")

    made = json.loads(cli(*added, "--json", "Update the dependencies").out)

    assert (made["spec"]["agent"], made["spec"]["prompt"]) == ("claude", "Update the dependencies")
    assert "There is no agent 'cladue'" in sentence(cli(*added[:-1], "cladue", "x"))


def test_workers_are_listed_with_the_agents_that_they_can_take(cli: Cli, real: World) -> None:
    real.worker("w1", labels={"agent.codex": "ready", "agent.claude": "shut", "gpu": "a100"})

    assert cli("worker", "ls").lines[0].split("\t")[-2:] == ["(claude),codex", "gpu=a100"]
    shown = cli("worker", "show", "w1").out
    assert ["agents", "(claude),codex"] in [line.split() for line in shown.splitlines()]
    assert "agent.codex" not in shown


def test_agents_are_listed_with_what_is_here_first(cli: Cli, claude: Path, settings: Path) -> None:
    settings.write_text('[agents.mine]\nlike = "claude"\n[agents.mine.accounts]\na = {}\nb = {}\n')

    rows = [line.split("\t") for line in cli("agents").lines]

    assert rows[:3] == [
        ["claude", "Claude Code", str(claude), "default", BUILT_IN_SOURCE],
        ["mine", "Claude Code", str(claude), "a b", str(settings)],
        ["standin", "Stand-in, for demos and tests", sys.executable, "default", BUILT_IN_SOURCE],
    ]
    assert ["codex", "Codex", "not installed", "default", BUILT_IN_SOURCE] in rows
    assert json.loads(cli("agents", "--json").lines[0]) == {
        "agent": "claude",
        "title": "Claude Code",
        "program": str(claude),
        "accounts": ["default"],
        "source": BUILT_IN_SOURCE,
    }


@pytest.mark.parametrize("agent", ProfileRegistry.load({}, Path("/nonexistent")).names())
def test_what_is_shown_of_an_agent_can_be_put_into_a_file(cli: Cli, agent: str) -> None:
    profile = ProfileRegistry.load({}, Path("/nonexistent")).get(agent)

    shown = cli("agents", "show", agent)

    assert Profile.model_validate(tomllib.loads(shown.out)) == profile
    assert shown.lines[0] == f"# {agent}, {BUILT_IN_SOURCE}"
    assert json.loads(cli("agents", "show", agent, "--json").out)["profile"]["format"] == profile.format


def test_an_unknown_agent_is_not_shown_or_checked(cli: Cli) -> None:
    for verb in ("show", "check"):
        answer = cli("agents", verb, "cladue")
        assert answer.code == 2
        assert "did you mean claude?" in sentence(answer)


def test_an_agent_that_is_of_use_passes_every_check(cli: Cli, claude: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")

    answer = cli("agents", "check", "claude")

    assert answer.code == 0
    assert answer.lines == [
        f"claude: ok   program   {claude}",
        "claude: ok   version   2.1.327",
        "claude: ok   login     by $ANTHROPIC_API_KEY",
    ]


def test_somebody_who_is_logged_in_by_a_file_is_seen(cli: Cli, claude: Path) -> None:
    file = Path.home() / ".claude/.credentials.json"
    file.parent.mkdir()
    file.write_text("{}")

    answer = cli("agents", "check", "claude")

    assert answer.lines == [
        f"claude: ok   program   {claude}",
        "claude: ok   version   2.1.327",
        f"claude: ok   login     by {file}",
    ]


@pytest.mark.parametrize(
    ("variable", "given", "login"),
    [
        ("OPENAI_OTHER_KEY", True, "ok   login     by $OPENAI_OTHER_KEY, for the provider of codex's own settings"),
        ("OPENAI_OTHER_KEY", False, "fail login     its provider wants $OPENAI_OTHER_KEY; "
                                    "set $OPENAI_OTHER_KEY for the worker"),
        ("MY_KEY", True, "fail login     its provider wants $MY_KEY and is not given it: name it in env_pass; "),
    ],
)  # fmt: skip
def test_codex_is_logged_in_where_the_provider_of_its_settings_has_its_key(
    cli: Cli, claude: Path, monkeypatch: pytest.MonkeyPatch, variable: str, given: bool, login: str
) -> None:
    program(claude.parent / "codex", "echo 'codex-cli 0.169.0'")
    for name in ("CODEX_API_KEY", "OPENAI_API_KEY", "CODEX_HOME"):
        monkeypatch.delenv(name, raising=False)
    settings = Path.home() / ".codex/config.toml"
    settings.parent.mkdir()
    settings.write_text(f'model_provider = "own"\n[model_providers.own]\nenv_key = "{variable}"\n')
    if given:
        monkeypatch.setenv(variable, "k")

    answer = cli("agents", "check", "codex")

    assert answer.lines[2].startswith(f"codex: {login}")


@pytest.mark.skipif(sys.platform == "darwin", reason="there, a keychain may know")
def test_an_agent_that_nobody_is_logged_in_to_fails(cli: Cli, claude: Path) -> None:
    answer = cli("agents", "check", "claude", "--run")

    assert answer.code == 1
    assert answer.lines[2].startswith("claude: fail login     no login found; log in, or set $ANTHROPIC")
    assert len(answer.lines) == 3, f"{claude} is not asked for a turn"


def test_an_agent_that_is_not_here_fails(cli: Cli, claude: Path) -> None:
    claude.unlink()

    answer = cli("agents", "check", "claude", "claude-acp")

    assert answer.code == 1
    assert answer.lines == [
        "claude: fail program   there is no claude on PATH; install it",
        "claude-acp: fail program   there is no claude-agent-acp on PATH; install it",
    ]


def test_a_program_of_your_own_is_not_called_to_be_told_its_version(cli: Cli, here: Path, settings: Path) -> None:
    """It may not know such an option, and begin its work."""
    settings.write_text('[agents.mine]\nlike = "command"\ncommand = "./mine"')
    program(here / "mine", "touch called")

    answer = cli("agents", "check", "mine")

    assert answer.lines == [f"mine: ok   program   {here}/mine", "mine: ok   login     not needed"]


def test_a_program_that_nobody_may_execute_is_told_from_one_that_is_not_there(
    cli: Cli, here: Path, settings: Path
) -> None:
    settings.write_text('[agents.mine]\nlike = "command"\ncommand = "./mine"')

    assert cli("agents", "check", "mine").lines[0].startswith(f"mine: fail program   there is no {here}/mine; see")
    (here / "mine").touch(0o644)
    assert f"{here}/mine is not executable; make it so with `chmod +x" in cli("agents", "check", "mine").lines[0]


@pytest.mark.parametrize(
    ("script", "said"),
    [("echo 'no library' >&2; exit 127", "--version exits with 127: no library"), ("exit 3", "exits with 3: and says")],
)
def test_an_agent_that_does_not_start_fails(cli: Cli, claude: Path, script: str, said: str) -> None:
    program(claude, script)

    answer = cli("agents", "check", "claude")

    assert answer.code == 1
    assert said in answer.lines[1]


def test_each_account_is_checked_for_itself(
    cli: Cli, claude: Path, settings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.write_text(
        '[agents.claude.accounts]\nwork.env.ANTHROPIC_API_KEY = "$WORK"\nhome.env.ANTHROPIC_API_KEY = "$HOME_KEY"'
    )
    monkeypatch.setenv("WORK", "k")

    answer = cli("agents", "check", "claude", "--json")

    found = [json.loads(line) for line in answer.lines[2:]]
    assert answer.code == 1
    assert [(each["check"], each["verdict"]) for each in found] == [("login work", "ok"), ("login home", "fail")]
    assert found[1]["found"].endswith("for its ANTHROPIC_API_KEY: $HOME_KEY is not set where the worker runs")
    assert str(claude) in answer.out


def test_a_turn_that_is_tried_tells_what_the_agent_answered(cli: Cli) -> None:
    answer = cli("agents", "check", "standin", "--run")

    assert answer.code == 0, answer.out
    assert answer.lines[-1].startswith("standin: ok   turn      it answered ")


def test_a_turn_that_fails_when_it_is_tried_says_why_and_leaves_nothing_behind(
    cli: Cli, claude: Path, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    pids = here / "pids"
    program(claude, f'[ "$1" = --version ] && echo 2.1.0 && exit; setsid sleep 600 & echo $! > {pids}; exit 1')

    answer = cli("agents", "check", "claude", "--run")

    assert answer.code == 1
    assert "claude: fail turn      agent_error: it says that it failed" in answer.out
    assert not Path(f"/proc/{pids.read_text().strip()}").exists()
