"""The budget of a plan: kept by the script that gives tasks to workers, whether or not anybody looks on."""

from __future__ import annotations

import pytest
from support.plan_stage import PlanStage, task
from support.world import World

from agentq.coordinator.errors import Duplicate
from agentq.coordinator.model.lifecycle import OutcomeClass
from agentq.coordinator.model.spec import AgentSpending, Outcome
from agentq.coordinator.plans.verbs import Plans
from agentq.coordinator.sessions.conversations import AgentConversations

TASKS = [task("a"), task("b"), task("c", "a"), task("d", "c")]


def studio_of(world: World, budget_usd: float | None) -> PlanStage:
    return PlanStage(world, TASKS, budget_usd=budget_usd)


def spend(studio: PlanStage, name: str, cost_usd: float) -> None:
    AgentConversations(studio.world.store).spend(studio.claims[name], AgentSpending(cost_usd=cost_usd, turns=1))


def test_what_waits_is_cancelled_when_the_tasks_have_cost_the_budget_and_what_runs_is_finished(world: World) -> None:
    studio = studio_of(world, 1.0)
    assert studio.claim() == ["a", "b"]
    spend(studio, "a", 0.4)
    spend(studio, "a", 0.4)  # sent twice
    spend(studio, "b", 0.6)
    assert studio.state == "running"
    studio.finish("a")

    assert studio.claim() == ["b"]
    assert studio.states() == {"a": "completed", "b": "claimed", "c": "cancelled", "d": "cancelled"}
    assert "it has cost $1.00, of $1.00 that it may cost" in studio.plans.get(studio.plan).stopped_why
    assert world.get(studio.claims["b"].id).reason == "", "it is not told to stop"
    studio.finish("b")
    assert studio.state == "cancelled"


@pytest.mark.parametrize("budget_usd", [2.0, None])
def test_below_its_budget_and_without_one_a_plan_goes_on(world: World, budget_usd: float | None) -> None:
    studio = studio_of(world, budget_usd)
    studio.claim()
    spend(studio, "a", 1.9)
    studio.finish("a")

    assert studio.claim() == ["b", "c"]
    studio.finish("b", "c", "d")
    assert studio.state == "completed"


def test_a_plan_that_has_spent_its_budget_begins_nothing_when_its_tasks_begin_again(world: World) -> None:
    studio = studio_of(world, 1.0)
    studio.claim()
    spend(studio, "a", 1.5)
    studio.queue.fail(studio.claims.pop("a"), Outcome(class_=OutcomeClass.REJECTED))
    studio.finish("b")
    assert studio.state == "failed"

    studio.plans.retry(studio.plan)

    assert studio.claim() == []
    assert studio.state == "cancelled"


def test_a_person_may_still_cancel_what_runs_beyond_the_budget(world: World) -> None:
    studio = studio_of(world, 1.0)
    studio.claim()
    spend(studio, "a", 1.5)
    studio.finish("a")
    studio.claim()

    studio.plans.cancel(studio.plan)

    studio.confirm()
    assert studio.states()["b"] == "cancelled"


def test_a_plan_that_is_sent_again_with_another_budget_is_another(world: World) -> None:
    studio = studio_of(world, 1.0)
    again = Plans(world.queue)
    with world.unchanged():
        again.create("shop", TASKS, plan=studio.plan, source="the source", budget_usd=1.0)
        with pytest.raises(Duplicate):
            again.create("shop", TASKS, plan=studio.plan, source="the source", budget_usd=2.0)
