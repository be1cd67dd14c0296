"""Plans that go on: tasks that begin again, with what was skipped for them, and tasks that are added."""

from __future__ import annotations

import pytest
from support.plan_stage import DIAMOND, PlanStage, task
from support.world import World

from agentq.coordinator.bounds import RETRIED_TASKS_PER_CALL
from agentq.coordinator.errors import Invalid
from agentq.coordinator.model.lifecycle import OutcomeClass, State
from agentq.coordinator.model.spec import Outcome


def test_a_task_that_begins_again_brings_back_what_was_skipped_for_it(world: World) -> None:
    """And not what was skipped for another."""
    studio = PlanStage(world, [*DIAMOND, task("e", "d"), task("x"), task("y", "x", "a")])
    studio.fail("a")
    studio.fail("x")
    assert studio.state == "failed"

    plan = studio.plans.retry(studio.plan, task="a")

    assert (plan.state, studio.states()) == (
        "running",
        {"a": "pending", "b": "blocked", "c": "blocked", "d": "blocked", "e": "blocked", "x": "failed", "y": "skipped"},
    )
    studio.finish("a", "b", "c", "d", "e")
    assert (studio.state, len(studio.words())) == ("failed", 2)
    studio.plans.retry(studio.plan)
    studio.finish("x", "y")
    assert (studio.state, len(studio.words())) == ("completed", 3)


def test_a_requeue_of_a_task_is_as_good_as_a_retry_of_its_plan(world: World) -> None:
    studio = PlanStage(world)
    studio.fail("a")

    assert world.queue.requeue(studio.runs()["a"]) is State.PENDING

    assert studio.states() == {"a": "pending", "b": "blocked", "c": "blocked", "d": "blocked"}


def test_what_fails_again_does_not_begin_again_in_the_same_retry(world: World) -> None:
    studio = PlanStage(world, [task(f"t{number}") for number in range(RETRIED_TASKS_PER_CALL + 50)])
    claims = studio.lease.claim(1000)
    for claim in claims:
        world.queue.fail(claim, Outcome(class_=OutcomeClass.REJECTED))
    partition = studio.plans.partition(studio.plan)
    assert world.store.call("plan/retry", partition, studio.plan, "failed", "once") == "ok 1"
    for claim in studio.lease.claim(1000):
        world.queue.fail(claim, Outcome(class_=OutcomeClass.REJECTED))
    world.tick()

    assert studio.plans.counts(studio.plan) == {State.PENDING: 50, State.FAILED: RETRIED_TASKS_PER_CALL}


def test_a_stopped_plan_that_is_retried_goes_on_where_it_was(world: World) -> None:
    studio = PlanStage(world, on_failed="fail-plan")
    studio.finish("a")
    studio.fail("b")
    studio.confirm()
    assert (studio.state, studio.states()) == (
        "failed", {"a": "completed", "b": "failed", "c": "cancelled", "d": "cancelled"},
    )  # fmt: skip

    plan = studio.plans.retry(studio.plan)

    assert (plan.state, studio.states()["d"]) == ("running", "blocked")
    studio.finish("b", "c", "d")
    assert studio.state == "completed"


def test_a_cancelled_plan_begins_again_with_its_first_task(world: World) -> None:
    """What was cancelled waits for what it needs, as before; in whatever order they stand."""
    studio = PlanStage(world)
    studio.plans.add(studio.plan, [task("e", "f"), task("f", "d")])
    studio.plans.cancel(studio.plan)

    studio.plans.retry(studio.plan, "all")

    assert studio.claim() == ["a"]
    studio.finish("a", "b", "c", "d", "f", "e")
    assert studio.state == "completed"


def test_a_task_that_was_cancelled_by_hand_begins_again_only_if_all_are_to(world: World) -> None:
    studio = PlanStage(world)
    studio.finish("a")
    world.queue.cancel(studio.runs()["c"])
    studio.finish("b")
    assert (studio.state, studio.states()["d"]) == ("failed", "skipped")

    assert studio.plans.retry(studio.plan, "failed").state == "failed"
    assert studio.plans.retry(studio.plan, "all").state == "running"

    studio.finish("c", "d")
    assert studio.state == "completed"


def test_tasks_are_added_to_a_plan_that_runs_and_to_one_that_has_ended(world: World) -> None:
    studio = PlanStage(world, [task("a")])
    added = studio.plans.add(studio.plan, [task("b", "a")])
    studio.finish("a", "b")
    assert (studio.state, studio.runs()["b"]) == ("completed", added["b"])

    studio.plans.add(studio.plan, [task("c", "a", "b")])

    assert studio.state == "running"
    with world.unchanged():
        assert studio.plans.add(studio.plan, [task("c", "a", "b")]) == {"c": studio.runs()["c"]}
    studio.finish("c")
    assert (studio.state, len(studio.words())) == ("completed", 2)
    for bad, sentence in (
        (task("d", "nobody"), "The task d needs nobody, which there is no task of."),
        (task("a"), f"The plan {studio.plan} has a task a already; give the new one another id."),
    ):
        with world.unchanged(), pytest.raises(Invalid) as refused:
            studio.plans.add(studio.plan, [bad])
        assert str(refused.value) == sentence
