"""How agents are started: arguments, what they read, and their environment."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from agentq.coordinator.errors import Invalid
from agentq.coordinator.model.agent_options import AgentBudgets, AgentTurnOptions
from agentq.worker.agents.profiles.command_line import AgentCommand, AgentLaunch, build_command
from agentq.worker.agents.profiles.registry import ProfileRegistry

PROFILES = ProfileRegistry.load({"HOME": "/nonexistent"}, Path("/nonexistent"))
EVERY = PROFILES.names()
SESSION = "0b1ef6b2-5f2b-4d60-9a0f-0d6f3a3c1d11"


@pytest.fixture
def world(tmp_path: Path) -> dict[str, str]:
    """The environment of a worker on whose PATH every agent is."""
    for profile in PROFILES.by_name.values():
        for program in {profile.command, *profile.needs} - {"", "{python}"}:
            (tmp_path / program).write_text("#!/bin/sh\n")
            (tmp_path / program).chmod(0o755)
    return {"PATH": str(tmp_path), "HOME": str(tmp_path / "home")}


def started(world: dict[str, str], agent: str = "claude", **asked: Any) -> AgentCommand:
    asked = {"prompt": "Fix it", "prompt_file": Path("/channel/prompt"), **asked}
    return build_command(AgentLaunch(agent, PROFILES.get(agent), **asked), world)


def refusal(world: dict[str, str], agent: str = "claude", **asked: Any) -> str:
    with pytest.raises(Invalid) as found:
        started(world, agent, **asked)
    return str(found.value)


def test_claude_begins_goes_on_and_forks_by_the_words_of_its_own(world: dict[str, str], tmp_path: Path) -> None:
    said = started(world, session=SESSION).argv

    assert said[0] == str(tmp_path / "claude")
    assert said[1:5] == ("-p", "--output-format", "stream-json", "--verbose")
    assert said[-2:] == ("--session-id", SESSION)
    assert started(world, session=SESSION, mode="resume").argv[-2:] == ("--resume", SESSION)
    assert started(world, session=SESSION, mode="fork").argv[-3:] == ("--resume", SESSION, "--fork-session")


def test_a_system_prompt_is_in_a_file_or_before_the_first_prompt_of_a_conversation(
    world: dict[str, str], tmp_path: Path
) -> None:
    turn, file = AgentTurnOptions(system_prompt="You are terse."), tmp_path / "system-prompt"
    claude = started(world, prompt="Go", turn=turn, system_file=file)
    assert claude.argv[claude.argv.index("--append-system-prompt-file") + 1] == str(file)
    assert (claude.system_file, claude.stdin) == (b"You are terse.", b"Go")

    codex = started(world, "codex", prompt="Go", turn=turn, system_file=file)
    assert (codex.system_file, codex.stdin) == (None, b"You are terse.\n\nGo")
    later = started(world, "codex", prompt="Go", turn=turn, mode="resume", session="s")
    assert later.stdin == b"Go", "its conversation has it already"
    assert "--append-system-prompt-file" not in started(world, prompt="Go").argv


def test_codex_goes_on_by_a_command_of_its_own_with_the_prompt_at_the_end(world: dict[str, str]) -> None:
    options = ("--json", "--skip-git-repo-check", "-c", "sandbox_mode=workspace-write", "-c", "approval_policy=never")

    assert started(world, "codex").argv[1:] == ("exec", *options, "-")
    assert started(world, "codex", mode="resume", session="t-1").argv[1:] == ("exec", "resume", *options, "t-1", "-")
    assert started(world, "codex", mode="fork", session="t-1").argv[1:] == ("exec", "fork", *options, "t-1", "-")


def test_a_bridge_is_our_interpreter_and_the_agent_stands_after_two_dashes(world: dict[str, str]) -> None:
    turn = AgentTurnOptions(model="m", permissions="read")
    said = started(world, "gemini-acp", mode="resume", session="s1", turn=turn).argv

    assert said == (
        *(sys.executable, "-m", "agentq.worker.agents.acp", "--model", "m", "--permissions", "read"),
        *("--resume", "s1", "--", "gemini", "--acp", "--skip-trust"),
    )


@pytest.mark.parametrize("agent", EVERY)
@pytest.mark.parametrize(
    "prompt",
    ["-rf hello", "--help", "$(touch /tmp/x); `id` {session} {model}", "a\0b", "grüße\udce4", "\n\nx", "x" * (1 << 20)],
    ids=["dash", "option", "shell", "nul", "half a character", "lines", "long"],
)
def test_no_prompt_is_ever_an_argument(world: dict[str, str], agent: str, prompt: str) -> None:
    found = started(world, agent, prompt=prompt)

    in_file = PROFILES.get(agent).prompt == "file"
    body = found.prompt_file if in_file else found.stdin
    assert body is not None
    assert body.decode().replace("\ufffd", "?") == prompt.replace("\0", "?").replace("\udce4", "?")
    assert (found.stdin == b"") == in_file
    assert not [word for word in found.argv if prompt in word]
    assert all("\0" not in word and not word.startswith("{") for word in found.argv)


@pytest.mark.parametrize("agent", EVERY)
def test_every_agent_starts_with_each_of_its_permissions_and_all_that_it_can_be_told(
    world: dict[str, str], agent: str
) -> None:
    profile = PROFILES.get(agent)
    model = "some-model" if profile.model_args else None
    for permissions in profile.permissions:
        turn = AgentTurnOptions(
            model=model, permissions=permissions, budgets=AgentBudgets(cost_usd=0.5, turns=7, tokens=10)
        )
        found = started(world, agent, turn=turn, session=SESSION)
        assert list(profile.permissions[permissions]) == [
            w for w in profile.permissions[permissions] if w in found.argv
        ]
        assert ("some-model" in found.argv) == (model is not None)
        assert ("7" in found.argv) == bool(profile.turns_args)
        assert ("0.5" in found.argv) == bool(profile.cost_args)
        assert (SESSION in found.argv) == profile.takes_id


def test_what_is_left_of_a_budget_counts_more_than_what_was_given(world: dict[str, str]) -> None:
    turn = AgentTurnOptions(budgets=AgentBudgets(cost_usd=2, turns=30))
    said = started(world, turn=turn, remaining=AgentBudgets(cost_usd=0.000125, turns=3)).argv

    assert said[said.index("--max-budget-usd") + 1] == "0.000125"
    assert said[said.index("--max-turns") + 1] == "3"


def test_an_id_of_ours_is_only_said_where_there_is_one(world: dict[str, str]) -> None:
    assert "--session-id" not in started(world).argv


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"prompt": " \n "}, "The prompt is empty"),
        ({"agent": "codex", "prompt": "x" * 1_048_577}, "codex takes 1048576 at the most"),
        ({"agent": "amp", "turn": AgentTurnOptions(model="m")}, "amp cannot be told which model to use"),
        ({"agent": "aider", "mode": "resume", "session": "x"}, "aider cannot go on with a conversation"),
        ({"agent": "gemini", "mode": "fork", "session": "x"}, "gemini cannot go on from a conversation as another one"),
        ({"agent": "aider", "turn": AgentTurnOptions(permissions="full")}, "takes the permissions read or edit"),
        ({"agent": "aider", "prompt_file": None}, "reads its prompt from a file"),
        ({"mode": "resume", "session": "--help"}, "cannot be passed as session"),
        ({"mode": "resume", "session": "a\nb"}, "cannot be passed as session"),
        ({"mode": "resume"}, "{session} is to be filled in"),
        ({"account": "wrok"}, "There is no account 'wrok' on this worker; there is default."),
    ],
)
def test_what_cannot_be_started_is_said_in_one_sentence(
    world: dict[str, str], asked: dict[str, Any], said: str
) -> None:
    assert said in refusal(world, **asked)


def test_a_missing_program_is_named(world: dict[str, str]) -> None:
    said = refusal({**world, "PATH": "/nonexistent"})

    assert said == "The agent claude is not installed here: there is no claude."


def test_a_program_that_its_installer_put_below_the_home_is_found(world: dict[str, str], tmp_path: Path) -> None:
    folder = tmp_path / "home/.local/bin"
    folder.mkdir(parents=True)
    (tmp_path / "claude").rename(folder / "claude")

    found = started(world)

    assert found.argv[0] == str(folder / "claude")
    assert found.env["PATH"] == f"{tmp_path}{os.pathsep}{folder}", "what it calls may lie beside it"


def test_an_agent_is_given_its_own_variables_of_the_workers_and_no_others(world: dict[str, str]) -> None:
    own = {"ANTHROPIC_API_KEY": "k", "CLAUDE_CONFIG_DIR": "/c", "https_proxy": "http://p", "XDG_DATA_HOME": "/d"}
    others = {"AGENTQ_URL": "redis://:secret@host", "OPENAI_API_KEY": "o", "GITHUB_TOKEN": "g", "LD_PRELOAD": "/x"}

    found = started(world | own | others).env

    assert found == own | {"DISABLE_AUTOUPDATER": "1", "CLAUDE_CODE_MAX_RETRIES": "2"}


@pytest.mark.parametrize("agent", EVERY)
def test_no_agent_is_given_anything_of_agentqs_own(world: dict[str, str], agent: str) -> None:
    world |= {"AGENTQ_URL": "redis://:secret@host", "AGENTQ_HOME": "/h", "AGENTQ_TOKEN": "secret"}

    assert not [name for name in started(world, agent).env if name.startswith("AGENTQ_")]


def test_root_may_bypass_permissions_only_where_everything_is_allowed(world: dict[str, str]) -> None:
    assert started(world, turn=AgentTurnOptions(permissions="full")).env["IS_SANDBOX"] == "1"
    assert "IS_SANDBOX" not in started(world).env


def test_an_untrusted_repository_is_not_asked_for_settings(world: dict[str, str]) -> None:
    assert "--strict-mcp-config" in started(world).argv
    assert "--strict-mcp-config" not in started(world, turn=AgentTurnOptions(trust="repo")).argv
