"""Work put onto other commits, with git's plumbing and in a worktree."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.repositories import Depot

from agentq.worker.workspace.git.git_command import Git
from agentq.worker.workspace.merge.rebase import (
    CommitRebase,
    MergeConflict,
    MergeTreeMerger,
    WorktreeMerger,
    format_trailer,
    read_commits,
)

MESSAGE = f"Do it\n\nIn full.\n\n{format_trailer('run_1')}\n"


@pytest.fixture(params=["plumbing", "worktree"])
def stacking(request: pytest.FixtureRequest, depot: Depot, tmp_path: Path) -> CommitRebase:
    git = Git(depot.path)
    if request.param == "plumbing":
        return CommitRebase(git, MergeTreeMerger(git))
    depot.git("worktree", "add", "-q", "--detach", str(tmp_path / "bench"))
    return CommitRebase(git, WorktreeMerger(git.in_folder(tmp_path / "bench")))


def stacked(depot: Depot, stacking: CommitRebase, onto: str, work: str, policy: str = "squash") -> str:
    one, other = read_commits(Git(depot.path), onto, work)
    return stacking.stacked(one, other, policy, MESSAGE)  # type: ignore[arg-type]


def test_a_squash_is_one_commit_with_the_author_and_the_date_of_the_work(depot: Depot, stacking: CommitRebase) -> None:
    base = depot.head()
    author = {"GIT_AUTHOR_NAME": "Agent Smith", "GIT_AUTHOR_DATE": "2020-02-02T02:02:02+0300"}
    (depot.path / "a.txt").write_text("one\ntwo\nthree!\n")
    depot.git("commit", "-qam", "first", env=author)
    depot.write(new__txt="new\n")
    depot.git("add", "-A")
    depot.git("commit", "-qm", MESSAGE, env=author)
    (tip,) = read_commits(Git(depot.path), "HEAD")
    target = depot.commit_on(base, "meanwhile", b__txt="other\n")

    landed = stacked(depot, stacking, target, stacking.squashed(tip, base))

    assert depot.git("show", "-s", "--format=%P|%an|%ai|%B", landed).strip() == (
        f"{target}|Agent Smith|2020-02-02 02:02:02 +0300|{MESSAGE}".strip()
    )
    assert depot.read(landed, "a.txt").endswith("three!")
    assert (depot.read(landed, "b.txt"), depot.read(landed, "new.txt")) == ("other", "new")


def test_work_on_the_target_s_own_tip_is_taken_as_it_is(depot: Depot, stacking: CommitRebase) -> None:
    base = depot.head()
    work = depot.commit_on(base, MESSAGE, a__txt="x\n")

    assert stacked(depot, stacking, base, work) == work


def test_work_that_is_there_already_adds_no_commit(depot: Depot, stacking: CommitRebase) -> None:
    base = depot.head()
    work = depot.commit_on(base, MESSAGE, a__txt="x\n")
    target = depot.commit_on(base, "the same, by somebody", a__txt="x\n", b__txt="more\n")

    assert stacked(depot, stacking, target, work) == target


def test_a_conflict_names_its_files_and_leaves_nothing_behind(depot: Depot, stacking: CommitRebase) -> None:
    base, odd = depot.head(), "a file\nwith ümlauts"
    work = depot.commit_on(base, MESSAGE, **{"a__txt": "mine\n", odd: "mine\n", "b__txt": None})
    target = depot.commit_on(base, "theirs", **{"a__txt": "theirs\n", odd: "theirs\n", "b__txt": "theirs\n"})

    with pytest.raises(MergeConflict) as conflict:
        stacked(depot, stacking, target, work)

    assert sorted(conflict.value.files) == [odd, "a.txt", "b.txt"]
    assert depot.status() == ""
    free = depot.commit_on(base, MESSAGE, c__txt="no conflict\n")
    assert depot.read(stacked(depot, stacking, target, free), "c.txt") == "no conflict"


def test_a_rebase_keeps_its_commits_and_the_last_has_the_trailer(depot: Depot, stacking: CommitRebase) -> None:
    base = depot.head()
    first = depot.commit_on(base, "first", a__txt="zero\none\ntwo\nthree\n")
    second = depot.commit_on(first, "second", a__txt="zero\none\ntwo\nthree\nfour\n")
    target = depot.commit_on(base, "meanwhile", b__txt="other\n")

    landed = stacked(depot, stacking, target, second, "rebase")

    assert depot.log(landed) == ["Do it", "first", "meanwhile", "begin"]
    assert depot.read(landed, "a.txt").split() == ["zero", "one", "two", "three", "four"]
    assert depot.read(landed, "b.txt") == "other"
    assert read_commits(Git(depot.path), landed)[0].carries("run_1")


def test_a_merge_is_a_merge_even_where_a_fast_forward_would_do(depot: Depot, stacking: CommitRebase) -> None:
    base = depot.head()
    work = depot.commit_on(base, "work", a__txt="x\n")

    for target in (base, depot.commit_on(base, "meanwhile", b__txt="other\n")):
        landed = stacked(depot, stacking, target, work, "merge")
        assert read_commits(Git(depot.path), landed)[0].parents == (target, work)
        assert depot.read(landed, "a.txt") == "x"


def test_only_what_the_run_did_goes_to_a_target_with_another_past(depot: Depot, stacking: CommitRebase) -> None:
    """The target was rewritten meanwhile: what it does not have any more does not come back with the work."""
    base = depot.head()
    middle = depot.commit_on(base, "to be dropped", c__txt="dropped\n")
    work = depot.commit_on(middle, MESSAGE, a__txt="x\n")
    target = depot.commit_on(base, "instead", b__txt="other\n")

    landed = stacked(depot, stacking, target, work)

    assert depot.git("ls-tree", "--name-only", landed).split() == ["a.txt", "b.txt"]
