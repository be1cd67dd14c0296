"""What the real agents may do without asking, and what of a repository they obey, is what their profiles say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from agents.real import RealAgents
from support.requirements import AGENTS

from agentq.coordinator.model.lifecycle import OutcomeClass
from agentq.coordinator.runs.run_record import RunRecord

pytestmark = pytest.mark.needs("agents", "namespaces")

MODELS = {"gemini": {"model": "gemini-2.5-flash"}}
WRITES, COMMANDS = "SCN:tool", "SCN:shell touch made.txt"


def outcomes(real: RealAgents, agent: str, *turns: tuple[str, dict[str, Any]]) -> list[tuple[str, bool]]:
    """The state of a run for each of these, and whether it has made the file, each in a folder of its own."""
    real.worker(slots=len(turns))
    folders = [real.studio.folder / str(place) for place in range(len(turns))]
    runs = []
    for folder, (prompt, turn) in zip(folders, turns, strict=True):
        folder.mkdir()
        runs.append(real.submit(agent, prompt, cwd=str(folder), turn={**MODELS.get(agent, {}), **turn}))
    ended = [real.studio.done(run, 90_000) for run in runs]
    return [(run.state.value, (folder / "made.txt").exists()) for run, folder in zip(ended, folders, strict=True)]


@pytest.mark.parametrize("agent", [agent for agent in AGENTS if agent != "opencode"])
def test_an_agent_that_may_read_changes_nothing_and_one_that_may_edit_runs_commands_too(
    real: RealAgents, agent: str
) -> None:
    read, edit = {"permissions": "read"}, {"permissions": "edit"}

    found = outcomes(real, agent, (WRITES, read), (COMMANDS, edit))

    assert [made for _, made in found] == [False, True]
    assert found[1][0] == "completed"


def test_opencode_changes_nothing_where_it_may_read(real: RealAgents) -> None:
    """That it does where it may edit is shown elsewhere; it takes its time to start."""
    assert [made for _, made in outcomes(real, "opencode", (WRITES, {"permissions": "read"}))] == [False]


def test_claude_runs_no_command_to_read_and_does_everything_also_as_root(real: RealAgents) -> None:
    found = outcomes(real, "claude", (COMMANDS, {"permissions": "read"}), (COMMANDS, {"permissions": "full"}))

    assert [made for _, made in found] == [False, True]
    assert found[1][0] == "completed"


def hooked(folder: Path, mark: Path) -> None:
    """A repository whose settings run something as soon as Claude starts."""
    hook = {"hooks": [{"type": "command", "command": f"touch {mark}-hook"}]}
    (folder / ".claude").mkdir()
    (folder / ".claude/settings.json").write_text(
        json.dumps({"hooks": {"SessionStart": [hook]}, "enableAllProjectMcpServers": True})
    )
    server = {"command": "/bin/sh", "args": ["-c", f"touch {mark}-server"]}
    (folder / ".mcp.json").write_text(json.dumps({"mcpServers": {"theirs": server}}))


def test_nothing_of_a_repository_runs_unless_it_is_trusted(real: RealAgents, folder: Path) -> None:
    hooked(real.studio.folder, folder / "mark")
    real.worker()

    untrusted = real.run("claude", "Say hello.")
    assert untrusted.state == "completed"
    assert not list(folder.glob("mark-*"))

    trusted = real.run("claude", "Say hello.", turn={"trust": "repo"})
    assert trusted.state == "completed"
    assert (folder / "mark-hook").exists(), "what would have run has to be there, or nothing was shown"


@pytest.mark.parametrize(("agent", "name"), [("opencode", "opencode.json"), ("gemini", ".gemini/settings.json")])
def test_an_agent_that_cannot_be_told_not_to_is_not_started(real: RealAgents, agent: str, name: str) -> None:
    file = real.studio.folder / name
    file.parent.mkdir(exist_ok=True)
    file.write_text("{}")
    real.worker()

    run: RunRecord = real.run(agent, "Say hello.")

    assert run.state == "failed"
    assert run.outcome is not None
    assert run.outcome.class_ is OutcomeClass.REJECTED
    assert str(file) in (run.outcome.error or "")
    assert real.sealed.asked() == [], "it was not started"
