"""What a killed git leaves is not in the way for ever, and nothing else is taken away."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from worker.workspace.depot import Depot

from agentq.worker.workspace import git as patience
from agentq.worker.workspace.abandoned import clear_away, removed
from agentq.worker.workspace.git import Git, GitFailed
from agentq.worker.workspace.target import Target

LONG_AGO = (1_000_000_000, 1_000_000_000)


def left(lock: Path) -> Path:
    """A lock of long ago."""
    lock.touch()
    os.utime(lock, LONG_AGO)
    return lock


def test_the_target_moves_past_it(depot: Depot) -> None:
    depot.git("branch", "work")
    target = Target(Git(depot.path / ".git"), "work")
    new = depot.commit_on("main", "new", a__txt="x\n")
    left(depot.path / ".git/refs/heads/work.lock")

    target.move(target.tip(), new)

    assert depot.head("work") == new


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("refs/heads/side.lock", ("checkout", "-q", "-B", "side")),
        ("HEAD.lock", ("checkout", "-q", "-B", "side")),
        ("packed-refs.lock", ("update-ref", "-d", "refs/heads/packed")),
        ("config.lock", ("config", "x.y", "z")),
    ],
)
def test_a_patient_git_goes_past_it(depot: Depot, name: str, words: tuple[str, ...]) -> None:
    depot.git("branch", "packed")
    depot.git("pack-refs", "--all")
    lock = left(depot.path / ".git" / name)

    Git(depot.path)(*words, patient=True)

    assert not lock.exists()


def test_somebody_s_who_is_at_it_is_left(depot: Depot) -> None:
    lock = left(depot.path / ".git/HEAD.lock")
    with lock.open():
        assert not removed(lock), "somebody has it open"
    lock.touch()
    assert not removed(lock), "it is new"
    assert lock.exists()


def test_that_of_an_index_is_left_however_old_it_is(depot: Depot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "PATIENCE_MS", 0)
    lock = left(depot.path / ".git/index.lock")
    (depot.path / "new").touch()

    with pytest.raises(GitFailed, match=r"index\.lock"):
        Git(depot.path)("add", "new", patient=True)

    assert lock.exists()


def test_nobody_can_have_a_file_taken_away_that_is_not_git_s(depot: Depot, tmp_path: Path) -> None:
    mine = left(tmp_path / "uv.lock")
    around = depot.path / ".git/refs/../../.." / mine.name

    clear_away(f"remote: Unable to create '{mine}': File exists.", depot.path)
    clear_away(f"remote: Unable to create '{around}': File exists.", depot.path)

    assert around.samefile(mine)
