"""The profiles of agents: the built-in ones, and what a user says beside and above them."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from support.generated_docs import ROOT

from agentq.coordinator.config.settings import load_settings
from agentq.coordinator.errors import Invalid, NotFound
from agentq.worker.agents.profiles.registry import BUILT_IN_SOURCE, ProfileRegistry

NATIVE = ["aider", "amp", "claude", "codex", "cursor", "gemini", "goose", "opencode", "qwen"]
BRIDGED = ["claude-acp", "codex-acp", "gemini-acp", "opencode-acp"]


def profiles_of(folder: Path, text: str = "", **files: str) -> ProfileRegistry:
    (folder / "agentq.toml").write_text(text)
    for name, content in files.items():
        (folder / "agents").mkdir(exist_ok=True)
        (folder / "agents" / f"{name}.toml").write_text(content)
    return ProfileRegistry.load({"HOME": str(folder / "home"), "AGENTQ_CONFIG": str(folder / "agentq.toml")}, folder)


def complaint_of(folder: Path, text: str = "", **files: str) -> str:
    with pytest.raises(Invalid) as found:
        profiles_of(folder, text, **files)
    return str(found.value)


def test_the_built_in_agents_are_there_without_a_file(tmp_path: Path) -> None:
    found = ProfileRegistry.load({"HOME": str(tmp_path)}, tmp_path)

    assert found.names() == sorted([*NATIVE, *BRIDGED, "standin"])
    assert set(found.sources.values()) == {BUILT_IN_SOURCE}


def test_a_user_changes_one_field_of_a_built_in_agent_and_keeps_the_rest(tmp_path: Path) -> None:
    found = profiles_of(tmp_path, "[agents.claude.env]\nCLAUDE_CODE_MAX_RETRIES = '5'\n")

    claude = found.get("claude")
    assert claude.env == {"DISABLE_AUTOUPDATER": "1", "CLAUDE_CODE_MAX_RETRIES": "5"}
    assert claude.resume_args == ("--resume", "{session}")
    assert found.sources["claude"] == str(tmp_path / "agentq.toml")
    assert found.sources["codex"] == BUILT_IN_SOURCE


def test_an_agent_of_the_users_own_is_like_another_one(tmp_path: Path) -> None:
    text = '[agents.mine]\nlike = "claude"\ncommand = "./bin/claude-wrapper"\n[agents.mine.accounts.work.env]\nK = "$W"'
    found = profiles_of(tmp_path, text)

    assert found.get("mine").command == str(tmp_path / "bin/claude-wrapper")
    assert found.get("mine").args == found.get("claude").args
    assert list(found.get("mine").accounts) == ["work"]
    assert not found.get("claude").accounts


def test_any_program_is_an_agent_when_it_is_named(tmp_path: Path) -> None:
    found = profiles_of(tmp_path, '[agents.mine]\nlike = "command"\ncommand = "my-agent"\nargs = ["--once"]')

    assert (found.get("mine").command, found.get("mine").format) == ("my-agent", "text")
    assert "command" not in found.names()
    with pytest.raises(Invalid, match="only a base for others"):
        found.get("command")


def test_a_profile_can_be_a_file_of_its_own_beside_the_settings(tmp_path: Path) -> None:
    found = profiles_of(tmp_path, mine='like = "other"\ntitle = "Mine"\n', other='like = "codex"\nneeds = ["git"]\n')

    assert (found.get("mine").title, found.get("mine").needs) == ("Mine", ("git",))
    assert found.get("mine").command == "codex"


def test_the_nearer_file_counts_more_than_the_users_own(tmp_path: Path) -> None:
    own = tmp_path / "home/.config/agentq"
    own.mkdir(parents=True)
    (own / "config.toml").write_text('[agents.claude]\ntitle = "of the user"\nlinger_timeout_ms = 5')

    found = profiles_of(tmp_path, '[agents.claude]\ntitle = "of the folder"')

    assert (found.get("claude").title, found.get("claude").linger_timeout_ms) == ("of the folder", 5)


def test_settings_are_read_although_there_are_agents_in_their_file(tmp_path: Path) -> None:
    (tmp_path / "agentq.toml").write_text('namespace = "mine"\n[agents.claude]\ntitle = "x"\n')

    assert load_settings({}, {"HOME": str(tmp_path)}, tmp_path).settings.namespace == "mine"

    (tmp_path / "agentq.toml").write_text("agents = 3")
    with pytest.raises(Invalid, match=r"\[agents\] is a table"):
        load_settings({}, {"HOME": str(tmp_path)}, tmp_path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[agents.claude]\ncomand = "x"', "comand: there is no such field; did you mean command?"),
        ('[agents.claude.accounts.work]\nenvironment = "x"', "accounts.work.environment: there is no such field"),
        ('[agents.mine]\nlike = "cluade"', "did you mean claude?"),
        ('[agents.mine]\ncommand = "x"', "format is missing"),
        ('[agents.mine]\ncomand = "x"', "comand: there is no such field; did you mean command?"),
        ("[agents.claude]\nprices.m.input = 1", "prices.m.output is missing; set it."),
        ('[agents.a]\nlike = "b"\n[agents.b]\nlike = "a"', "inherits from itself through"),
        ('[agents.claude]\nenv_pass = ["AGENTQ_URL"]', "'AGENTQ_URL' cannot be passed on"),
        ('[agents.claude]\nenv_pass = ["*"]', "'*' cannot be passed on"),
        ('[agents.claude.env]\nAGENTQ_TOKEN = "x"', "'AGENTQ_TOKEN' is not the name of a variable"),
        ('[agents.claude]\nresume_args = ["--resume", "{sesion}"]', "there is no {sesion}; there is {session}"),
        ('[agents.claude]\nresume_args = ["--resume"]', "resume_args has no {session} in it"),
        ('[agents.claude]\nprompt_args = ["{prompt_file}"]', "{prompt_file} stands in prompt_args"),
        ("[agents.claude]\npermissions.everything = []", "permissions.everything: "),
        ('[agents."a b"]\nlike = "claude"', "'a b' in"),
        ("[agents]\nclaude = 3", "is no table"),
        ("agents = 3", "The profiles in"),
        ("[agents.claude", "cannot be read"),
    ],
)
def test_what_is_wrong_with_a_profile_is_said_with_its_place(tmp_path: Path, text: str, said: str) -> None:
    complaint = complaint_of(tmp_path, text)

    assert said in complaint
    assert str(tmp_path / "agentq.toml") in complaint


def test_an_agent_that_stands_in_two_places_is_refused(tmp_path: Path) -> None:
    assert "is defined twice" in complaint_of(tmp_path, '[agents.mine]\nlike = "claude"', mine='like = "codex"')


def test_the_examples_of_the_page_are_profiles(tmp_path: Path) -> None:
    page = (ROOT / "worker/agentq/worker/agents/README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    assert len(blocks) >= 3

    for place, block in enumerate(blocks):
        (tmp_path / str(place)).mkdir()
        assert set(tomllib.loads(block)["agents"]) <= set(profiles_of(tmp_path / str(place), block).names())


def test_an_unknown_agent_is_answered_with_the_nearest_name(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"There is no agent 'cladue'; did you mean claude\?"):
        ProfileRegistry.load({"HOME": str(tmp_path)}, tmp_path).get("cladue")
