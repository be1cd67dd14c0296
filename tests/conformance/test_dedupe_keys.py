"""One live run has a dedupe key: what becomes of a second one, in every state that the first can be in."""

from __future__ import annotations

import pytest
from conformance import lives
from conformance.stage import COMMAND, MakeStage, Stage
from conformance.variants import VARIANTS, Variant

from agentq.coordinator.errors import Duplicate
from agentq.coordinator.model.ids import new_run_id
from agentq.coordinator.model.lifecycle import LIVE_STATES, TERMINAL_STATES, State
from agentq.coordinator.model.spec import RunSpec
from agentq.coordinator.runs.verbs import SubmitReceipt

FIRST_OF_STATE = {variant.state: variant for variant in reversed(VARIANTS) if variant.state is not None}
OTHERS = ("pending and read", "pending when requeued", "claimed, to be stopped", "waiting for its alarm")
CASES = [*FIRST_OF_STATE.values(), *(variant for variant in VARIANTS if variant.name in OTHERS)]

live = pytest.mark.parametrize(
    "variant", [each for each in CASES if each.state in LIVE_STATES], ids=lambda each: each.name
)
ended = pytest.mark.parametrize(
    "variant", [each for each in CASES if each.state in TERMINAL_STATES], ids=lambda each: each.name
)


def rival(stage: Stage, **fields: object) -> RunSpec:
    """A run with the same key as the stage's own."""
    return RunSpec.checked(**COMMAND, dedupe_key=stage.spec.dedupe_key, **fields)


def with_key(variant: Variant, make_stage: MakeStage) -> tuple[Stage, str]:
    """A run with a key, and the id of another."""
    stage = make_stage()
    stage.fields["dedupe_key"] = stage.key_at_home("key")
    variant.build(stage)
    return stage, new_run_id(stage.partition)


@live
def test_a_submit_with_the_key_of_a_live_run_returns_that_one(variant: Variant, make_stage: MakeStage) -> None:
    stage, other = with_key(variant, make_stage)

    with stage.unchanged():
        assert stage.queue.submit(rival(stage), run_id=other) == SubmitReceipt(stage.run, created=False)


@live
def test_a_submit_that_rejects_live_runs_is_refused(variant: Variant, make_stage: MakeStage) -> None:
    stage, other = with_key(variant, make_stage)

    with stage.unchanged(), pytest.raises(Duplicate, match=stage.run):
        stage.queue.submit(rival(stage, if_live="reject"), run_id=other)


@live
def test_a_submit_that_replaces_cancels_what_has_never_begun(variant: Variant, make_stage: MakeStage) -> None:
    stage, other = with_key(variant, make_stage)
    events = len(stage.events())
    replacement = rival(stage, if_live="replace")

    if stage.world.get(stage.run).attempt > 0:
        with stage.unchanged():
            assert stage.queue.submit(replacement, run_id=other) == SubmitReceipt(stage.run, created=False)
        return

    assert stage.queue.submit(replacement, run_id=other) == SubmitReceipt(other, created=True)
    told = [(event.run, event.event, event.state) for event in stage.events(events)]
    assert told == [(stage.run, "cancelled", "cancelled"), (other, "submitted", "pending")]
    with stage.unchanged():
        assert stage.queue.submit(replacement, run_id=other) == SubmitReceipt(other, created=True)
    variant.next(stage)


@ended
@pytest.mark.parametrize("if_live", ["return", "reject", "replace"])
def test_a_run_that_has_ended_has_its_key_no_more(variant: Variant, if_live: str, make_stage: MakeStage) -> None:
    stage, other = with_key(variant, make_stage)

    assert stage.queue.submit(rival(stage, if_live=if_live), run_id=other) == SubmitReceipt(other, created=True)

    assert stage.present() == variant.state
    assert stage.value("dedupe", str(stage.spec.dedupe_key)) == other


@ended
def test_a_run_whose_key_was_taken_cannot_be_requeued_until_it_is_free(variant: Variant, make_stage: MakeStage) -> None:
    stage, other = with_key(variant, make_stage)
    stage.queue.submit(rival(stage), run_id=other)

    with stage.unchanged(), pytest.raises(Duplicate, match=other):
        stage.queue.requeue(stage.run)

    stage.queue.cancel(other)
    stands_behind = variant.name.endswith("another turn being live")
    assert stage.queue.requeue(stage.run) == (State.BLOCKED if stands_behind else State.PENDING)
    with stage.unchanged():
        assert stage.queue.submit(rival(stage), run_id=new_run_id(stage.partition)).id == stage.run


def test_a_run_that_is_skipped_as_it_is_born_leaves_its_key_free(make_stage: MakeStage) -> None:
    stage = make_stage()
    stage.fields["dedupe_key"] = stage.key_at_home("key")
    parents = stage.add_parents()
    lives.dependency_failed(stage)

    stage.submit(after=parents)

    assert stage.world.event_names(stage.run) == ["submitted", "skipped"]
    assert stage.queue.submit(rival(stage), run_id=new_run_id(stage.partition)).created
