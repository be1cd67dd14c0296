"""A checkout that follows its branch: only if it is clean, and whole again after a kill at any point."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from support.repositories import Depot

from agentq.coordinator.errors import Refused
from agentq.worker.workspace.git.git_command import Git, GitCancellation
from agentq.worker.workspace.merge.checkout_update import CheckoutUpdate
from agentq.worker.workspace.merge.target_branch import TargetBranch, TargetMoved


class Killed(BaseException):
    """Nothing is cleaned up by whoever was killed: here, that is imitated by a fork."""


def follow(depot: Depot, new: str, say: Callable[[str], None] = lambda _: None, patience_ms: int = 0) -> None:
    target = TargetBranch(Git(depot.path), "main")
    tip = target.tip()
    assert tip.commit is not None
    checkout = CheckoutUpdate(Git(depot.path), depot.path, say, locked_ms=patience_ms, edited_ms=patience_ms)
    checkout.follow(tip.commit, new, lambda: target.move(tip, new))


def new_commit(depot: Depot) -> str:
    files = {"a__txt": "one\ntwo\nthree\nfour\n", "b__txt": None, "sub/new__txt": "new\n" * 1000}
    return depot.commit_on(depot.head(), "new", **files)


def killed_in(act: Callable[[], None]) -> None:
    """Run it in a process that ends without cleaning up where it says so."""
    pid = os.fork()
    if pid == 0:
        try:
            act()
        finally:
            os._exit(9)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9


def test_a_clean_checkout_follows_with_files_index_and_branch(depot: Depot) -> None:
    new = new_commit(depot)
    depot.write(untracked__txt="mine\n")

    follow(depot, new)

    assert (depot.head(), depot.head("main"), depot.status()) == (new, new, "?? untracked.txt")
    assert (depot.path / "sub" / "new.txt").read_text() == "new\n" * 1000
    assert not (depot.path / "b.txt").exists()


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"a__txt": "mine\n"}, "has changes in a.txt; commit or stash"),
        ({"sub/new__txt": "mine\n"}, "cannot follow: .*new.txt"),
    ],
)
def test_a_checkout_with_somebody_s_work_in_it_is_left_alone(depot: Depot, files: dict[str, str], says: str) -> None:
    before, new = depot.head(), new_commit(depot)
    depot.write(**files)
    status = depot.status()

    with pytest.raises(Refused, match=says):
        follow(depot, new)

    assert (depot.head("main"), depot.status()) == (before, status)
    assert not (depot.path / ".git" / "index.lock").exists()


def test_a_git_at_work_in_the_checkout_is_not_disturbed(depot: Depot) -> None:
    before, new = depot.head(), new_commit(depot)
    lock = depot.path / ".git" / "index.lock"
    lock.touch()

    with pytest.raises(Refused, match=r"index\.lock exists"):
        follow(depot, new)

    assert depot.head("main") == before
    assert lock.exists()


def test_a_git_at_work_there_for_a_moment_is_waited_for(depot: Depot, monkeypatch: pytest.MonkeyPatch) -> None:
    """As an editor that asks for the status again and again."""
    new = new_commit(depot)
    lock = depot.path / ".git" / "index.lock"
    lock.touch()
    pauses: list[float] = []

    def pause(_: GitCancellation, seconds: float) -> None:
        pauses.append(seconds)
        lock.unlink()

    monkeypatch.setattr(GitCancellation, "pause", pause)

    follow(depot, new, patience_ms=60_000)

    assert (depot.head("main"), depot.status(), len(pauses)) == (new, "", 1)


@pytest.mark.parametrize("then", ["taken back", "committed"])
def test_a_file_that_is_being_edited_is_waited_for(depot: Depot, monkeypatch: pytest.MonkeyPatch, then: str) -> None:
    before, new = depot.head(), new_commit(depot)
    depot.write(a__txt="half a sen\n")
    said: list[str] = []

    def pause(*_: object) -> None:
        assert not (depot.path / ".git" / "index.lock").exists(), "the person's git works meanwhile"
        if then == "taken back":
            depot.git("checkout", "-q", "a.txt")
        else:
            depot.git("commit", "-qam", "mine")

    monkeypatch.setattr(GitCancellation, "pause", pause)

    if then == "taken back":
        follow(depot, new, said.append, patience_ms=60_000)
        assert (depot.head("main"), depot.status()) == (new, "")
    else:
        with pytest.raises(TargetMoved):
            follow(depot, new, said.append, patience_ms=60_000)
        assert depot.git("log", "--format=%s", f"{before}..main") == "mine"
    assert said == [f"waits: The checkout {depot.path} has changes in a.txt; commit or stash them, and retry the run."]


@pytest.mark.parametrize("step", ["move", "change", "partly", "replace"])
def test_a_kill_at_any_point_is_made_good_by_the_next_look(
    depot: Depot, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, new = depot.head(), new_commit(depot)

    def die(*_: object, **__: object) -> None:
        os._exit(9)

    def act() -> None:
        if step == "move":
            monkeypatch.setattr(TargetBranch, "move", die)
        elif step == "change":
            monkeypatch.setattr(CheckoutUpdate, "_change", die)
        elif step == "replace":
            monkeypatch.setattr(Path, "replace", die)
        else:
            monkeypatch.setattr(CheckoutUpdate, "_change", lambda *_: partly(depot))
        follow(depot, new)

    killed_in(act)
    moved = step != "move"
    assert depot.head("main") == (new if moved else before)
    assert (depot.path / ".git" / "index.lock").exists()

    assert CheckoutUpdate(Git(depot.path), depot.path).finish()

    assert (depot.head(), depot.status()) == (new if moved else before, "")
    assert (depot.path / "a.txt").read_text() == depot.read("HEAD", "a.txt") + "\n"
    leftovers = [
        path.name for path in (depot.path / ".git").glob("*") if "lock" in path.name or "agentq-index" in path.name
    ]
    assert leftovers == []
    depot.commit("the person goes on", c__txt="c\n")


def test_what_somebody_wrote_after_the_kill_is_not_overwritten(depot: Depot) -> None:
    new = new_commit(depot)

    def act() -> None:
        CheckoutUpdate._change = lambda *_: os._exit(9)  # type: ignore[method-assign]
        follow(depot, new)

    killed_in(act)
    depot.write(a__txt="precious\n")

    with pytest.raises(Refused, match=r"a\.txt was changed since"):
        CheckoutUpdate(Git(depot.path), depot.path).finish()

    assert (depot.path / "a.txt").read_text() == "precious\n"


def partly(depot: Depot) -> None:
    """As git leaves it when it is killed while it writes files."""
    depot.write(**{"a__txt": "one\ntwo\nthree\nfour\n", "sub/new__txt": "new\nne"})
    os._exit(9)
