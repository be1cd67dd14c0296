"""What a person does on the branch of a run becomes the run's: it carries the trailers by which it is found again."""

from __future__ import annotations

import pytest
from support.worktree_runs import Yard


@pytest.mark.parametrize("merge", ["squash", "rebase", "merge"])
def test_a_commit_that_a_person_adds_on_the_branch_of_a_task_is_marked_as_the_task_s(yard: Yard, merge: str) -> None:
    depot = yard.depot
    run = yard.submit("echo bad > a.txt; exit 0", check=["grep", "-q", "good", "a.txt"], on_check="fail", merge=merge,
                      name="Mend a")  # fmt: skip
    yard.done(run)
    by_hand = depot.commit_on(f"agentq/{run}", "by hand", a__txt="good\n")
    depot.git("update-ref", f"refs/heads/agentq/{run}", by_hand)

    yard.crew.queue.requeue(run)
    (ended,) = yard.done(run)

    assert ended.state == "completed", ended.outcome
    assert depot.read("work", "a.txt") == "good"
    assert yard.delivered()[-1] == run
    assert depot.log("work", "%an")[0] == "Ada"
