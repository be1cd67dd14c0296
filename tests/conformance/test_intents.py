"""What an attempt notes of its workspace is there for the next one, and for nobody else."""

from __future__ import annotations

import json

import pytest
from conformance.stage import MakeStage, Stage

from agentq.coordinator.bounds import MERGE_PROGRESS_BYTES
from agentq.coordinator.errors import Fenced, Invalid
from agentq.coordinator.model.lifecycle import OutcomeClass
from agentq.coordinator.model.spec import Outcome
from agentq.coordinator.model.workspace import DeliveredWork
from agentq.coordinator.runs.merge_progress import MergeProgress, RepairReason

COMMITTED = MergeProgress(
    step="committed", host="alpha", worktree="/w/1", branch="agentq/run_1", base="ba5e", commit="c0ffee", rounds=1,
    outcome=Outcome(exit_code=0, result={"tests": []}), repair=RepairReason(what="check", target="7a49e7"),
)  # fmt: skip


def noted(stage: Stage, intent: MergeProgress = COMMITTED) -> None:
    """The run is in an attempt's hands, which notes how far it has come."""
    stage.submit()
    stage.take(start=True)
    stage.queue.intend(stage.claim, intent)


def test_the_next_attempt_reads_what_the_last_one_noted(make_stage: MakeStage) -> None:
    stage = make_stage()
    noted(stage)
    with stage.unchanged():
        stage.queue.intend(stage.claim, COMMITTED)
    assert stage.queue.intent(stage.claim) == COMMITTED == stage.world.get(stage.run).intent
    old = stage.claim
    stage.lose()
    stage.take("w2")

    assert stage.queue.intent(stage.claim) == COMMITTED
    with stage.unchanged():
        with pytest.raises(Fenced):
            stage.queue.intend(old, MergeProgress(step="merged"))
        with pytest.raises(Fenced):
            stage.queue.intent(old)


def test_an_attempt_finds_nothing_where_nothing_was_noted(make_stage: MakeStage) -> None:
    stage = make_stage()
    stage.submit()
    stage.take()

    assert stage.queue.intent(stage.claim) is None


def test_a_run_that_failed_and_begins_again_knows_where_its_marker_is_to_be_looked_for(make_stage: MakeStage) -> None:
    stage = make_stage()
    noted(stage)
    stage.fail(OutcomeClass.REJECTED)
    stage.queue.requeue(stage.run)
    stage.take("w2")

    found = stage.queue.intent(stage.claim)

    assert found == COMMITTED.model_copy(update={"step": "requeued", "rounds": 0, "outcome": None, "repair": None})


def test_a_completed_run_that_begins_again_leaves_what_it_delivered_behind(make_stage: MakeStage) -> None:
    stage = make_stage()
    noted(stage)
    stage.queue.finish([(stage.claim, Outcome(work=DeliveredWork(commit="de11", merged=True)))])
    for worker in ("w2", "w3"):
        stage.queue.requeue(stage.run)
        stage.take(worker)
        found = stage.queue.intent(stage.claim)
        assert found is not None
        assert (found.step, found.base) == ("requeued", "de11")
        # The second life ends before it has noted anything.
        stage.fail(OutcomeClass.REJECTED)


def test_a_note_of_a_newer_version_is_read_without_what_is_new(make_stage: MakeStage) -> None:
    stage = make_stage()
    noted(stage)
    text = json.loads(COMMITTED.to_wire())
    text |= {"colour": "red", "outcome": text["outcome"] | {"smell": "none"}}
    stage.plant("HSET", stage.key("run", stage.run), "merge_progress", json.dumps(text))

    assert stage.queue.intent(stage.claim) == COMMITTED


def test_a_note_has_its_limit(make_stage: MakeStage) -> None:
    stage = make_stage()
    stage.submit()
    stage.take()

    with pytest.raises(Invalid, match=f"The note has .* characters; {MERGE_PROGRESS_BYTES} is the most."):
        stage.queue.intend(stage.claim, MergeProgress(step="prepared", worktree="w" * MERGE_PROGRESS_BYTES))
