"""The commit that a plan begins from: the first that an attempt names holds for all of its tasks."""

from __future__ import annotations

import pytest
from conformance.stage import MakeStage
from support.plan_stage import PlanStage
from support.world import World

from agentq.coordinator.errors import WrongState
from agentq.coordinator.model.lifecycle import OutcomeClass
from agentq.coordinator.runs.merge_progress import base_key

MAIN = base_key("/repository", "main")


def test_the_first_commit_that_is_named_holds_for_all_tasks_of_a_plan(world: World) -> None:
    studio = PlanStage(world)
    assert studio.claim() == ["a"]
    pin = world.queue.pin
    assert pin(studio.claims["a"], MAIN) is None
    assert pin(studio.claims["a"], MAIN, "c0ffee") == "c0ffee"
    with world.unchanged():
        assert pin(studio.claims["a"], MAIN, "c0ffee") == "c0ffee"
        assert pin(studio.claims["a"], MAIN, "de11") == "c0ffee"
    studio.finish("a")
    studio.claim()

    with world.unchanged():
        assert pin(studio.claims["b"], MAIN) == "c0ffee"
        assert pin(studio.claims["c"], MAIN, "de11") == "c0ffee"
        assert pin(studio.claims["b"], base_key("/repository", "next")) is None


def test_a_run_without_a_plan_pins_nothing_and_an_attempt_that_was_lost_is_refused(make_stage: MakeStage) -> None:
    stage = make_stage()
    stage.submit()
    old = stage.take(start=True)
    with stage.unchanged():
        assert stage.queue.pin(old, MAIN, "c0ffee") == "c0ffee"
        assert stage.queue.pin(old, MAIN) is None
    stage.fail(OutcomeClass.REJECTED)

    with stage.unchanged(), pytest.raises(WrongState):
        stage.queue.pin(old, MAIN, "c0ffee")
