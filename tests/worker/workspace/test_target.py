"""The branch that work goes to: it moves from where it was seen, or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.repositories import Depot

from agentq.coordinator.errors import Refused
from agentq.worker.workspace.git.git_command import Git
from agentq.worker.workspace.merge.rebase import format_trailer
from agentq.worker.workspace.merge.target_branch import TargetBranch, TargetMoved, TargetTip


@pytest.fixture
def remote(depot: Depot, tmp_path: Path) -> Depot:
    """A bare one that the depot calls `origin`."""
    bare = Depot(tmp_path / "remote.git", bare=True)
    depot.git("remote", "add", "origin", str(bare.path))
    depot.git("push", "-q", "origin", "main")
    return bare


def test_a_branch_moves_only_from_where_it_was_seen(depot: Depot) -> None:
    base = depot.head()
    target = TargetBranch(Git(depot.path), "release/1")
    new, other = depot.commit_on(base, "new", a__txt="x\n"), depot.commit_on(base, "other", a__txt="y\n")
    seen = target.tip()
    assert seen == TargetTip()

    target.move(seen, new)

    with pytest.raises(TargetMoved):
        target.move(seen, other)
    assert target.tip().commit == new


def test_a_run_s_work_is_found_by_its_trailer_and_by_nothing_like_it(depot: Depot) -> None:
    base = depot.head()
    like = depot.commit_on(base, f"about {format_trailer('run_1')}5\n", a__txt="x\n")
    work = depot.commit_on(like, f"Done\n\n{format_trailer('run_1')}\n", a__txt="y\n")
    target = TargetBranch(Git(depot.path), "main")

    assert target.delivered("run_1", base, like) is None
    assert target.delivered("run_1", base, work) == work
    assert target.delivered("run_1", work, work) is None


def test_a_checkout_of_the_target_is_seen_wherever_it_is(depot: Depot, tmp_path: Path) -> None:
    depot.git("worktree", "add", "-q", "-b", "side", str(tmp_path / "with space"))
    depot.git("branch", "free")

    seen = {name: TargetBranch(Git(depot.path), name).tip().checkout for name in ("main", "side", "free", "none")}

    assert seen == {"main": depot.path, "side": tmp_path / "with space", "free": None, "none": None}


def test_a_push_that_lost_the_race_changes_nothing_on_either_side(depot: Depot, remote: Depot) -> None:
    depot.git("checkout", "-q", "--detach")
    target = TargetBranch(Git(depot.path), "main", remote="origin")
    seen = target.tip()
    mine = depot.commit_on(depot.head(), "mine", a__txt="x\n")
    other = depot.commit_on(depot.head(), "another machine's", b__txt="y\n")
    depot.git("push", "-q", "origin", f"{other}:main")

    with pytest.raises(TargetMoved):
        target.move(seen, mine)

    assert (remote.head("main"), depot.head("main")) == (other, seen.commit)
    assert target.tip().commit == other
    target.move(target.tip(), depot.commit_on(other, "mine again", a__txt="x\n"))
    assert remote.log("main") == depot.log("main") == ["mine again", "another machine's", "begin"]


def test_a_branch_is_made_at_the_remote(depot: Depot, remote: Depot) -> None:
    target = TargetBranch(Git(depot.path), "new", remote="origin", local=False)
    target.move(target.tip(), depot.head())

    assert remote.head("new") == depot.head()
    with pytest.raises(TargetMoved):
        target.move(TargetTip(), depot.commit_on(depot.head(), "late", a__txt="x\n"))


@pytest.mark.usefixtures("remote")
def test_a_target_that_has_parted_from_its_remote_is_for_a_person_to_mend(depot: Depot) -> None:
    other = depot.commit_on(depot.head(), "theirs", b__txt="y\n")
    depot.git("push", "-q", "origin", f"{other}:main")
    depot.commit("ours", a__txt="x\n")

    with pytest.raises(Refused, match="have parted"):
        TargetBranch(Git(depot.path), "main", remote="origin").tip()
