"""A turn in the merge line, on real git: what gets in, what does not, and what a batch makes of a bad member."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from support.repositories import Depot

from agentq.coordinator.errors import Refused
from agentq.worker.workspace.git.git_command import Git
from agentq.worker.workspace.merge.landing import CheckRejected, LandedWork, MergePiece, WorkLanding
from agentq.worker.workspace.merge.rebase import CommitRebase, MergeConflict, MergeTreeMerger, format_trailer
from agentq.worker.workspace.merge.target_branch import TargetBranch, TargetMoved


@dataclass
class Scene:
    """A depot whose target is `main`, which nobody has checked out; and a check that dislikes some files."""

    depot: Depot
    bad: set[str] = field(default_factory=set)
    checked: list[str] = field(default_factory=list)
    noted: list[tuple[str, str | None]] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    left: set[str] = field(default_factory=set)
    """Runs that do not wait any more."""

    def work(self, run: str, **files: str | None) -> MergePiece:
        base = self.depot.head()
        return MergePiece(run, self.depot.commit_on(base, f"{run}\n\n{format_trailer(run)}\n", **files), base)

    async def check(self, commit: str) -> CheckRejected | None:
        self.checked.append(commit)
        files = set(self.depot.git("ls-tree", "--name-only", commit).split())
        return CheckRejected(f"disliked: {sorted(files & self.bad)}") if files & self.bad else None

    async def note(self, new: str, old: str | None) -> None:
        self.noted.append((new, old))

    def land(
        self, piece: MergePiece, *others: MergePiece, check: bool = True, target: TargetBranch | None = None
    ) -> LandedWork:
        git = Git(self.depot.path)
        landing = WorkLanding(
            target or TargetBranch(git, "main"),
            CommitRebase(git, MergeTreeMerger(git)),
            "squash",
            note=self.said.append,
        )

        async def behind() -> Sequence[tuple[str, str]]:
            return [(each.run, each.commit) for each in others if each.run not in self.left]

        return asyncio.run(landing.land(piece, self.note, self.check if check else None, behind))

    def log(self) -> list[str]:
        return self.depot.log("main")


@pytest.fixture
def scene(depot: Depot) -> Scene:
    depot.git("checkout", "-q", "--detach")
    return Scene(depot)


def test_work_lands_once_however_often_it_is_tried(scene: Scene) -> None:
    piece = scene.work("run_1", c__txt="c\n")
    before = scene.depot.head("main")

    landed = scene.land(piece)
    again = scene.land(piece)

    assert landed.commit == again.commit == scene.depot.head("main")
    assert scene.log() == ["run_1", "begin"]
    assert scene.noted == [(landed.commit, before)], "and is noted before, where it goes from and to"


def test_a_check_is_made_on_the_merged_work_and_before_the_target_moves(scene: Scene) -> None:
    """Neither is bad alone: it is the two together that fail."""
    first, second = scene.work("run_1", c__txt="c\n"), scene.work("run_2", d__txt="d\n")
    scene.land(first)
    before = scene.depot.head("main")

    async def together(commit: str) -> CheckRejected | None:
        files = scene.depot.git("ls-tree", "--name-only", commit).split()
        return CheckRejected("both") if {"c.txt", "d.txt"} <= set(files) else None

    scene.check = together  # type: ignore[method-assign]
    with pytest.raises(CheckRejected, match="both"):
        scene.land(second)

    assert scene.depot.head("main") == before


def test_a_conflict_moves_nothing_and_does_not_hurt_the_next(scene: Scene) -> None:
    one, two, three = scene.work("run_1", a__txt="1\n"), scene.work("run_2", a__txt="2\n"), scene.work("run_3", e="e\n")
    scene.land(one)

    with pytest.raises(MergeConflict, match=r"conflict in a\.txt"):
        scene.land(two)
    scene.land(three)

    assert scene.log() == ["run_3", "run_1", "begin"]
    assert scene.depot.read(two.commit, "a.txt") == "2", "its work is where it was"


def test_a_target_that_somebody_else_moves_meanwhile_is_merged_into_once_more(scene: Scene) -> None:
    piece, moves = scene.work("run_1", c__txt="c\n"), iter(["by another", "by a third"])

    async def note(new: str, old: str | None) -> None:
        assert new
        if (message := next(moves, None)) is not None:
            assert old is not None
            scene.depot.git("update-ref", "refs/heads/main", scene.depot.commit_on(old, message, **{message: "x\n"}))

    scene.note = note  # type: ignore[method-assign]
    scene.land(piece)

    assert scene.log() == ["run_1", "by a third", "by another", "begin"]
    assert len(scene.checked) == 3, "each time with what had come"


def test_those_who_wait_are_taken_along_and_find_their_work_there(scene: Scene) -> None:
    own, *others = (scene.work(f"run_{number}", **{f"f{number}": "x\n"}) for number in range(5))

    landed = scene.land(own, *others)

    assert scene.log() == ["run_4", "run_3", "run_2", "run_1", "run_0", "begin"]
    assert len(scene.checked) == 1
    assert scene.depot.head("main~4") == landed.commit
    assert scene.land(others[2]).commit == scene.depot.head("main~1")
    assert len(scene.checked) == 1


def test_a_bad_one_among_them_is_left_out_and_is_told_in_its_own_turn(scene: Scene) -> None:
    own, *others = (scene.work(f"run_{number}", **{f"f{number}": "x\n"}) for number in range(8))
    scene.bad = {"f5"}

    scene.land(own, *others)
    assert scene.log() == ["run_3", "run_2", "run_1", "run_0", "begin"], "half of them, after two checks"
    assert len(scene.checked) == 2
    assert any("together with 7" in sentence for sentence in scene.said)

    scene.land(others[3], *others[4:])
    with pytest.raises(CheckRejected, match="f5"):
        scene.land(others[4], *others[5:])
    scene.land(others[5], others[6])
    assert scene.log() == ["run_7", "run_6", "run_4", "run_3", "run_2", "run_1", "run_0", "begin"]


def test_one_that_conflicts_or_is_nobody_s_is_not_taken_along(scene: Scene) -> None:
    own = scene.work("run_1", a__txt="1\n")
    conflicting, fitting = scene.work("run_2", a__txt="2\n"), scene.work("run_3", c__txt="c\n")
    unmarked = MergePiece("run_4", scene.depot.commit_on(scene.depot.head(), "no trailer", d__txt="d\n"), own.base)

    scene.land(own, conflicting, unmarked, fitting)

    assert scene.log() == ["run_3", "run_1", "begin"]


def test_one_that_leaves_the_line_while_it_is_checked_is_not_taken_along(scene: Scene) -> None:
    """It was cancelled, say: its work is not to get in."""
    own, leaving, staying = (scene.work(f"run_{number}", **{f"f{number}": "x\n"}) for number in range(3))

    async def check(commit: str) -> CheckRejected | None:
        scene.checked.append(commit)
        scene.left.add("run_1")
        return None

    scene.check = check  # type: ignore[method-assign]
    scene.land(own, leaving, staying)

    assert scene.log() == ["run_2", "run_0", "begin"]
    assert len(scene.checked) == 2


def test_a_target_that_somebody_has_checked_out_is_refused_by_name(scene: Scene) -> None:
    piece = scene.work("run_1", a__txt="1\n")
    scene.depot.git("checkout", "-q", "main")

    with pytest.raises(Refused, match=rf"The branch main is checked out in {scene.depot.path}, which"):
        scene.land(piece)

    assert (scene.log(), scene.depot.status()) == (["begin"], "")


def test_two_machines_meet_at_the_remote(scene: Scene, tmp_path: Path) -> None:
    """Each has a copy of its own; whoever loses the race puts its work onto the winner's."""
    remote = Depot(tmp_path / "remote.git", bare=True)
    scene.depot.git("push", "-q", str(remote.path), "main")
    scenes = []
    for number in (1, 2):
        scene.depot.git("clone", "-q", "--bare", str(remote.path), str(tmp_path / f"copy{number}.git"))
        copy = Depot.__new__(Depot)
        copy.path = tmp_path / f"copy{number}.git"
        copy.git("config", "user.name", "Ada")
        copy.git("config", "user.email", "ada@example.org")
        scenes.append(Scene(copy))
    pieces = [one.work(f"run_{number}", **{f"f{number}": "x\n"}) for number, one in enumerate(scenes)]
    targets = [TargetBranch(Git(one.depot.path), "main", remote="origin", local=False) for one in scenes]
    behind = scenes[1]
    seen: list[str | None] = []

    async def note(new: str, old: str | None) -> None:
        assert new
        if not seen:
            await asyncio.to_thread(first)
        seen.append(old)

    def first() -> None:
        scenes[0].land(pieces[0], target=targets[0])

    behind.note = note  # type: ignore[method-assign]
    behind.land(pieces[1], target=targets[1])

    assert len(seen) == 2
    assert remote.log("main") == ["run_1", "run_0", "begin"]
    assert behind.land(pieces[1], target=targets[1]).commit == remote.head("main")


def test_a_target_that_never_holds_still_is_told_and_not_tried_for_ever(scene: Scene) -> None:
    class Restless(TargetBranch):
        def move(self, *_: object) -> None:
            raise TargetMoved

    with pytest.raises(Refused, match="was moved by others 20 times"):
        scene.land(scene.work("run_1", c="c\n"), target=Restless(Git(scene.depot.path), "main"), check=False)
