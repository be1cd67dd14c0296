"""`agentq worktree`, as people and programs use it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli.conftest import Cli
from support.repositories import ALONE, Depot
from support.workspaces import Job, Workshop


@pytest.fixture
def depot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Depot:
    for name, value in ALONE.items():
        monkeypatch.setenv(name, value)
    made = Depot(tmp_path / "depot")
    made.commit("begin", a__txt="a\n")
    return made


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workshop:
    monkeypatch.setenv("AGENTQ_HOME", str(tmp_path / "home"))
    return Workshop(tmp_path / "home")


def failed(shop: Workshop, depot: Depot, run: str) -> Job:
    """A run that has failed, and left something."""
    job = shop.begin(depot.path, run)
    (job.path / run).write_text("left\n")
    job.close(failed="exited with code 1")
    return job


def test_worktrees_are_listed_with_why_they_are_there(cli: Cli, depot: Depot, shop: Workshop) -> None:
    job = failed(shop, depot, "run_a")
    shop.begin(depot.path, "run_b")
    (job.path.parent / "stray").mkdir()

    rows = [line.split("\t") for line in cli("worktree", "ls").lines]
    assert [(row[0], row[1], row[-1]) for row in rows] == [
        ("run_a", "kept", "exited with code 1"),
        ("run_b", "running", ""),
        ("-", "unknown", "not recorded: yours"),
    ]
    told = json.loads(cli("worktree", "ls", "--json", "--size").lines[0])
    assert (told["path"], told["branch"], told["is"]) == (str(job.path), "agentq/run_a", "kept")
    assert told["bytes"] > 0


def test_a_worktree_is_opened_by_the_beginning_or_end_of_its_run(
    cli: Cli, depot: Depot, shop: Workshop, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    job = failed(shop, depot, "run_abc")
    failed(shop, depot, "run_abd")

    for words in ("abc", "bc", "BC", "run_abc"):
        assert cli("worktree", "open", words).out == f"{job.path}\n"
    assert cli("worktree", "open", "run_bc").code == 2, "with run_ it is the beginning"
    monkeypatch.setenv("EDITOR", f"touch {tmp_path}/edited")
    assert cli("worktree", "open", "run_abc", "--editor").code == 0
    assert (tmp_path / "edited").exists()
    monkeypatch.setenv("SHELL", "/bin/false")
    assert cli("worktree", "open", "abc", "--shell").code == 1


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("open", "nothing"), "There is no worktree of 'nothing'"),
        (("open", "ab"), "'ab' begins or ends the ids of several runs: run_abc, run_abd"),
        (("open", "abc", "--shell", "--editor"), "do not go together"),
        (("open", "abc", "--editor"), "Neither VISUAL nor EDITOR"),
        (("prune", "--all", "--older", "1h"), "does not go with --older"),
        (("prune", "--older", "soon"), "soon"),
    ],
)
def test_what_cannot_be_done_is_told_and_changes_nothing(
    cli: Cli, depot: Depot, shop: Workshop, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], says: str
) -> None:
    monkeypatch.delenv("EDITOR", raising=False)
    monkeypatch.delenv("VISUAL", raising=False)
    for run in ("run_abc", "run_abd"):
        failed(shop, depot, run)
    answer = cli("worktree", *words)

    assert (answer.code, says in answer.err) == (2, True)
    assert len(cli("worktree", "ls").lines) == 2


def test_prune_shows_first_what_it_would_do_and_loses_no_work(cli: Cli, depot: Depot, shop: Workshop) -> None:
    job = failed(shop, depot, "run_a")
    shop.begin(depot.path, "run_b")
    assert cli("worktree", "prune").out == ""

    shown = cli("worktree", "prune", "--all")
    assert shown.out.startswith(f"would remove {job.path}  ")
    assert "--yes removes them" in shown.err
    assert job.path.exists()

    done = cli("worktree", "prune", "--all", "--yes")
    assert done.out == f"{job.path} removed, its work kept as refs/agentq/run_a\n"
    assert depot.read("refs/agentq/run_a", "run_a") == "left"
    assert [line.split("\t")[0] for line in cli("worktree", "ls").lines] == ["run_b"]
