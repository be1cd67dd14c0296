"""From the claim to the target: runs in worktrees, with real workers, a real server and real git."""

from __future__ import annotations

from worker.workspace.yard import Yard, work


def test_a_run_s_work_is_one_commit_in_the_target_and_the_checkout_is_left_alone(yard: Yard) -> None:
    yard.worker()

    run = yard.run("echo new > c.txt; rm b.txt; pwd", name="Write c")

    assert run.state == "completed", run.outcome
    told = work(run)
    assert (told.merged, told.files, told.insertions, told.deletions) == (True, 2, 1, 1)
    assert told.commit == yard.depot.head("work")
    assert yard.commits() == ["Write c"]
    assert yard.delivered() == [run.id]
    assert yard.depot.git("ls-tree", "--name-only", "work").split() == ["a.txt", "c.txt"]
    assert (yard.depot.status(), yard.depot.git("branch", "--show-current")) == ("", "main")
    assert yard.lines() == []
