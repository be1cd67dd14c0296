"""Worktrees do not stay for ever, nor take the whole disk; and no work goes with them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.repositories import Depot
from support.workspaces import Job, Workshop

from agentq.coordinator.clock import wall_ms
from agentq.worker.cleanup.host_cleanup import clean_home
from agentq.worker.options import WorkerOptions
from agentq.worker.process import process_tree
from agentq.worker.workspace.worktree.creation import WorktreeRequest, make_worktree
from agentq.worker.workspace.worktree.retention import RetentionPolicy, apply_retention, list_worktrees

HOUR_MS = 3_600_000
FOREVER = RetentionPolicy(1_000 * HOUR_MS, 1 << 40)


def aged(job: Job, hours: int) -> None:
    """As if nobody had worked in it for so long."""
    (note,) = [each.record for each in list_worktrees(job.path.parent.parent.parent) if each.record.run == job.run]
    past_ms = wall_ms() - hours * HOUR_MS
    note.updated(made_at_ms=past_ms, ended_at_ms=past_ms if note.ended_at_ms else None)


def killed(job: Job) -> None:
    """As if the worker that has it had been killed."""
    with subprocess.Popen([sys.executable, "-c", ""]) as dead:
        holder = process_tree.get_process_name(dead.pid)
    job.prepared.worktree.update_record(holder=holder)


def kinds(shop: Workshop) -> dict[str, str]:
    return {each.record.run: each.kind for each in list_worktrees(shop.home)}


@pytest.mark.parametrize(
    ("keep", "failed", "became"),
    [
        ("failed", None, "idle"),
        ("failed", "it exited with code 1", "kept"),
        ("always", None, "kept"),
        ("never", "it exited with code 1", "idle"),
    ],
)
def test_a_worktree_stays_as_its_run_says(
    depot: Depot, shop: Workshop, keep: str, failed: str | None, became: str
) -> None:
    job = shop.begin(depot.path, keep=keep)
    (job.path / "new").write_text("new\n")

    assert job.close(failed=failed) == became
    (found,) = list_worktrees(shop.home)
    assert (found.kind, found.record.branch is not None) == (became, became == "kept")
    if became == "idle":
        assert depot.read("refs/agentq/run_1", "new") == "new"


@pytest.mark.parametrize("idle_max", [0, 8])
def test_what_somebody_has_added_on_the_branch_is_kept_when_it_goes(
    depot: Depot, shop: Workshop, idle_max: int
) -> None:
    shop.all.idle_max = idle_max
    job = shop.begin(depot.path)
    (job.path / "new").write_text("new\n")
    work = job.commit()
    added = depot.commit_on(work.commit, "by hand", by_hand="by hand\n")
    depot.git("update-ref", "refs/heads/agentq/run_1", added)

    shop.all.close(job.prepared, job.workspace, target=work.commit, clean_at=work.commit)

    assert depot.git("for-each-ref", "--format=%(refname)", "refs/heads") == "refs/heads/main"
    assert depot.head("refs/agentq/run_1") == added


def test_a_worktree_of_a_person_whose_disk_is_away_is_not_forgotten(depot: Depot, shop: Workshop) -> None:
    depot.git("worktree", "add", "-q", "--detach", "../away")
    depot.path.with_name("away").rename(depot.path.with_name("elsewhere"))
    shop.all.idle_max = 0

    assert shop.begin(depot.path).close() == "removed"
    assert "away" in depot.git("worktree", "list")


def test_no_more_stay_idle_than_are_asked_for(depot: Depot, shop: Workshop) -> None:
    shop.all.idle_max = 2
    jobs = [shop.begin(depot.path, f"run_{n}") for n in range(4)]

    assert [job.close() for job in jobs] == ["idle", "idle", "removed", "removed"]
    assert len(depot.git("worktree", "list").splitlines()) == 3


def test_what_is_old_goes_and_what_a_run_works_in_never(depot: Depot, shop: Workshop) -> None:
    jobs = {name: shop.begin(depot.path, name) for name in ("running", "dead", "failed", "fresh")}
    for name, job in jobs.items():
        (job.path / name).write_text(f"of {name}\n")
    killed(jobs["dead"])
    for name in ("failed", "fresh"):
        jobs[name].close(failed="it failed")
    assert kinds(shop) == {"running": "running", "dead": "left", "failed": "kept", "fresh": "kept"}
    for name in ("running", "dead", "failed"):
        aged(jobs[name], 24)

    told = apply_retention(shop.home, RetentionPolicy(HOUR_MS, 1 << 40))

    assert kinds(shop) == {"running": "running", "fresh": "kept"}
    assert [depot.read(f"refs/agentq/{name}", name) for name in ("dead", "failed")] == ["of dead", "of failed"]
    assert "its work kept as refs/agentq/dead: nobody has worked in it for long" in "\n".join(told)
    assert apply_retention(shop.home, FOREVER) == []


def test_what_was_being_taken_away_by_a_worker_that_was_killed_goes_at_once(depot: Depot, shop: Workshop) -> None:
    job = shop.begin(depot.path, "run_1")
    (job.path / "late.txt").write_text("late\n")
    job.prepared.worktree.update_record(state="going")
    assert apply_retention(shop.home, FOREVER) == [], "its worker lives"

    killed(job)
    (found,) = list_worktrees(shop.home)
    found.record.updated(state="going")
    (told,) = apply_retention(shop.home, FOREVER)

    assert told.endswith("its work kept as refs/agentq/run_1: whoever was taking it away is gone")
    assert list_worktrees(shop.home) == []
    assert depot.git("for-each-ref", "refs/heads/agentq") == ""
    assert depot.read("refs/agentq/run_1", "late.txt") == "late"


def test_a_worktree_that_holds_nothing_of_its_own_leaves_nothing_behind(depot: Depot, shop: Workshop) -> None:
    shop.begin(depot.path, "failed").close(failed="it failed")
    shop.all.hand_over(shop.begin(depot.path, "left").prepared, why="its work conflicts")
    job = shop.begin(depot.path, "parked")
    shop.all.hand_over(job.prepared)
    repository = job.prepared.worktree.repository
    merges = make_worktree(repository, shop.home, WorktreeRequest("merges-work", repository.resolved("main"), None))
    (merges.path / "merged").write_text("which others hold\n")
    merges.update_record(holder="")

    assert {each.record.run: each.why for each in list_worktrees(shop.home)} == {
        "failed": "it failed",
        "left": "its work conflicts; if there is another attempt, it goes on in it",
        "parked": "it is handed on; if there is another attempt, it goes on in it",
        "merges-work": "work is checked in it before it is merged",
    }
    assert len(apply_retention(shop.home, RetentionPolicy(-1, 0))) == 4
    assert depot.git("for-each-ref", "refs/agentq", "refs/heads/agentq") == ""


def test_what_takes_too_much_of_the_disk_goes_the_idle_first_then_the_oldest(depot: Depot, shop: Workshop) -> None:
    jobs = [shop.begin(depot.path, f"run_{n}") for n in range(4)]
    for hours, job in enumerate(jobs):
        (job.path / "large").write_bytes(b"x" * (1 << 20))
        job.close(failed=None if hours == 1 else "it failed")
    for hours, job in enumerate(jobs):
        if hours != 1:
            aged(job, 10 - hours)

    clean_home(shop.home, WorkerOptions(worktree_disk=(2 << 20) + (1 << 19)))

    assert kinds(shop) == {"run_2": "kept", "run_3": "kept"}
    assert depot.git("cat-file", "-s", "refs/agentq/run_0:large") == str(1 << 20)


def test_a_repository_within_keeps_its_worktree_whatever_is_said(depot: Depot, shop: Workshop) -> None:
    job = shop.begin(depot.path)
    Depot(job.path / "inner").commit("inner", i__txt="i\n")
    job.close(failed="it failed")
    aged(job, 24)

    assert "within it is nowhere else" in apply_retention(shop.home, RetentionPolicy(HOUR_MS, 0))[0]
    assert (job.path / "inner" / "i.txt").exists()
    assert apply_retention(shop.home, RetentionPolicy(HOUR_MS, 0)) == []


def test_a_worktree_whose_repository_is_gone_is_left_to_its_user(depot: Depot, shop: Workshop) -> None:
    job = shop.begin(depot.path)
    (job.path / "new").write_text("new\n")
    job.close(failed="it failed")
    depot.path.rename(depot.path.with_name("moved"))

    assert "is gone; delete it yourself" in apply_retention(shop.home, RetentionPolicy(-1, 0))[0]
    assert (job.path / "new").exists()


def test_ports_are_free_and_no_two_runs_have_the_same(depot: Depot, shop: Workshop) -> None:
    def elsewhere(program: str) -> list[str]:
        """What another process of this machine prints."""
        program = f"from agentq.worker.workspace.worktree import ports; print(*{program})"
        return subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True
        ).stdout.split()

    names = tuple(f"PORT_{n}" for n in range(30))
    jobs = [shop.begin(depot.path, f"run_{n}", ports=names) for n in range(2)]
    given = [int(job.prepared.variables[name]) for job in jobs for name in names]
    of_others = elsewhere("ports.take_ports([str(n) for n in range(100)]).values()")

    assert len({*given, *map(int, of_others)}) == 160
    can_be_had = f"[ports._lock_port(port) for port in {given}]"
    assert set(elsewhere(can_be_had)) == {"False"}
    for job in jobs:
        job.close()
    assert set(elsewhere(can_be_had)) == {"True"}


def test_a_setup_is_not_done_again_in_a_tree_in_which_it_has_succeeded(depot: Depot, shop: Workshop) -> None:
    job = shop.begin(depot.path, setup=("make", "deps"))
    assert not job.prepared.setup_done
    shop.all.note_set_up(job.prepared, job.workspace)

    def again(setup: tuple[str, ...]) -> bool:
        return shop.begin(depot.path, same=True, earlier=True, setup=setup).prepared.setup_done

    assert again(("make", "deps"))
    assert not again(("make", "other"))
    assert not shop.begin(depot.path, setup=("make", "deps")).prepared.setup_done
    assert Path(job.path).exists()
