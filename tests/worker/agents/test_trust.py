"""What keeps a repository from running its own programs through an agent."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentq.coordinator.model.agent_options import AgentTurnOptions
from agentq.worker.agents.profiles.registry import ProfileRegistry
from agentq.worker.agents.profiles.trust import find_refusal

PROFILES = ProfileRegistry.load({"HOME": "/nonexistent"}, Path("/nonexistent"))


def refused(folder: Path, agent: str = "opencode", **turn: str) -> str | None:
    return find_refusal(agent, PROFILES.get(agent), AgentTurnOptions.model_validate(turn), folder)


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    folder = tmp_path / "home/work/repository"
    folder.mkdir(parents=True)
    return folder


def test_a_clean_repository_is_worked_on(repository: Path) -> None:
    (repository / "README.md").write_text("read me")

    assert refused(repository) is None


@pytest.mark.parametrize("name", ["opencode.json", "opencode.jsonc", ".opencode"])
def test_opencode_is_not_started_beside_what_it_would_obey(repository: Path, name: str) -> None:
    (repository / name).write_text("{}")

    assert refused(repository) == (
        f"opencode would obey {repository / name}, which is the repository's, and cannot be told not to; look at it, "
        "and say --trust repo if it may."
    )
    assert refused(repository, trust="repo") is None
    assert refused(repository, "claude") is None, "it can be told not to"


def test_a_file_above_the_folder_counts_as_well(repository: Path) -> None:
    (repository / "packages/one").mkdir(parents=True)
    (repository / "opencode.json").write_text("{}")

    assert refused(repository / "packages/one") is not None


def test_a_link_is_no_way_around(repository: Path, tmp_path: Path) -> None:
    (repository / ".opencode").symlink_to("/nonexistent/elsewhere")
    (tmp_path / "way").symlink_to(repository)

    assert refused(repository) is not None, "a link counts, wherever it leads"
    assert refused(tmp_path / "way") is not None, "the agent works where the link leads"


def test_what_lies_in_the_home_is_the_users_own(repository: Path) -> None:
    (repository.parent.parent / "opencode.json").write_text("{}")

    assert refused(repository) is None
    assert refused(repository.parent.parent) is None
