"""What a killed git leaves is not in the way for ever, and nothing else is taken away."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest
from support.repositories import Depot

from agentq.worker.workspace.git import git_command as patience
from agentq.worker.workspace.git import stale_locks
from agentq.worker.workspace.git.git_command import Git, GitFailed
from agentq.worker.workspace.git.stale_locks import STALE_LOCK_MS, remove_stale_lock, remove_stale_locks
from agentq.worker.workspace.merge.target_branch import TargetBranch, TargetMoved, TargetTip

LONG_AGO = (1_000_000_000, 1_000_000_000)


def left(lock: Path) -> Path:
    """A lock of long ago."""
    lock.touch()
    os.utime(lock, LONG_AGO)
    return lock


def test_the_target_moves_past_it(depot: Depot) -> None:
    depot.git("branch", "work")
    target = TargetBranch(Git(depot.path / ".git"), "work")
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

    Git(depot.path)(*words, wait_for_locks=True)

    assert not lock.exists()


def test_somebody_s_who_is_at_it_is_left(depot: Depot) -> None:
    lock = left(depot.path / ".git/HEAD.lock")
    with lock.open():
        assert not remove_stale_lock(lock), "somebody has it open"
    lock.touch()
    assert not remove_stale_lock(lock), "it is new"
    assert lock.exists()


def test_that_of_an_index_is_left_however_old_it_is(depot: Depot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "LOCK_WAIT_MS", 0)
    lock = left(depot.path / ".git/index.lock")
    (depot.path / "new").touch()

    with pytest.raises(GitFailed, match=r"index\.lock"):
        Git(depot.path)("add", "new", wait_for_locks=True)

    assert lock.exists()


def test_a_living_git_s_is_left_though_it_has_it_not_open(depot: Depot) -> None:
    """Of a transaction that is prepared, which may take its time."""
    old, new = depot.head(), depot.commit_on("main", "new", a__txt="x\n")
    depot.git("branch", "work")
    words = ["git", "-C", str(depot.path), "update-ref", "--stdin"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as mover:
        assert mover.stdin is not None
        assert mover.stdout is not None
        mover.stdin.write(f"start\nupdate refs/heads/work {new} {old}\nprepare\n")
        mover.stdin.flush()
        assert [mover.stdout.readline() for _ in range(2)] == ["start: ok\n", "prepare: ok\n"]
        lock = depot.path / ".git/refs/heads/work.lock"
        long_ago = time.time() - STALE_LOCK_MS / 1000 - 1
        os.utime(lock, (long_ago, long_ago))

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(stale_locks, "CLOCK_SLACK_MS", 2 * STALE_LOCK_MS)  # as if it had begun before that
            assert not remove_stale_lock(lock)
        mover.communicate("commit\n")

    assert (mover.returncode, depot.head("work")) == (0, new)


def test_a_branch_that_somebody_moves_meanwhile_is_told_at_once(depot: Depot, monkeypatch: pytest.MonkeyPatch) -> None:
    """Patience for locks would last for an hour."""
    monkeypatch.setattr(patience, "LOCK_WAIT_MS", 3_600_000)
    base = depot.head()
    target = TargetBranch(Git(depot.path / ".git"), "work")
    new, other = depot.commit_on(base, "new", a__txt="x\n"), depot.commit_on(base, "other", a__txt="y\n")
    depot.git("branch", "work", other)
    git = Git(depot.path)

    with pytest.raises(GitFailed, match="but expected"):
        git("update-ref", "refs/heads/work", new, base, wait_for_locks=True)
    with pytest.raises(TargetMoved):
        target.move(TargetTip(commit=base, local=base), new)


@pytest.mark.parametrize(
    "path",
    [
        "uv.lock",
        "depot/.git/refs/../../../uv.lock",
        "depot/.git/agentq.lock",
        "depot/.git/index.lock",
        "other/.git/HEAD.lock",
        "bare/main/Cargo.lock",
    ],
)
def test_nobody_can_have_a_file_taken_away_that_is_no_lock_of_this_repository(
    depot: Depot, tmp_path: Path, path: str
) -> None:
    """A remote may say what git says, and so may the name of a file; a working tree may stand in a git directory."""
    Depot(tmp_path / "other")
    Depot(tmp_path / "bare", bare=True)
    (tmp_path / "bare/main").mkdir()
    mine = left((tmp_path / path).parent.resolve() / Path(path).name)

    for folder in (depot.path, tmp_path / "bare"):
        for who in ("", "fatal: "):
            remove_stale_locks(f"{who}Unable to create '{tmp_path / path}': File exists.", folder, None)

    assert mine.exists()


def test_a_remote_that_says_what_git_says_is_not_believed(depot: Depot) -> None:
    lock = left(depot.path / ".git/HEAD.lock")

    for who in ("remote: ", "fatal: remote error: "):
        remove_stale_locks(f"{who}Unable to create '{lock}': File exists.", depot.path, None)

    assert lock.exists()
