"""What a plan has to do with where its tasks are, in words; and waiting for a plan."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from support.plan_stage import PlanStage, task
from support.world import World

from agentq.coordinator.errors import WaitTimedOut
from agentq.coordinator.explain.run import RunExplanation
from agentq.coordinator.runs.merge_queue import merge_queue_id


def why(studio: PlanStage, name: str) -> list[str]:
    """The sentences about a task; explaining changes nothing."""
    with studio.world.unchanged():
        _, sentences = RunExplanation(studio.world.store, studio.world.settings).of(studio.runs()[name])
    return sentences


def test_a_task_tells_its_plan_and_the_tasks_that_it_waits_for(world: World) -> None:
    studio = PlanStage(world)
    studio.claim()

    assert why(studio, "b")[0] == f"It waits for {studio.runs()['a']} (claimed on w1, the task a) to end."
    assert why(studio, "b")[-1] == f"It is the task b of the plan {studio.plan}, which is running."


def test_a_task_that_was_skipped_tells_for_which_other(world: World) -> None:
    studio = PlanStage(world)
    studio.fail("a")
    first = studio.runs()["a"]

    assert why(studio, "b")[2:] == [
        f"It was skipped for {first}, the task a; `agentq why {first}` explains that run.",
        f"`agentq retry {first}` starts both again.",
        f"It is the task b of the plan {studio.plan}, which is failed.",
    ]


def test_a_task_of_a_plan_that_was_stopped_tells_why(world: World) -> None:
    studio = PlanStage(world, [task("a"), task("b")], on_failed="fail-plan")
    studio.claim()
    studio.fail("a")
    assert why(studio, "b")[-1] == (
        f"It is the task b of the plan {studio.plan}, which is stopping, because its task a failed."
    )
    studio.confirm()

    assert why(studio, "b")[-1] == f"`agentq plan retry {studio.plan}` continues it."


def test_a_task_of_a_plan_whose_submit_was_cut_tells_that(world: World) -> None:
    studio = PlanStage(world)
    world.store.call("plan/create", studio.plans.partition(studio.plan), studio.plan, "", "", 0, "", "", "")

    assert why(studio, "a")[-2:] == [
        f"It is the task a of the plan {studio.plan}, which is open.",
        f"Not all of that plan was submitted; `agentq plan resume {studio.plan}` completes it.",
    ]
    world.queue.cancel(studio.runs()["a"], stop_ms=0)
    world.store.call("plan/seal", studio.plans.partition(studio.plan), studio.plan)


def test_a_run_that_waits_to_move_its_branch_tells_who_is_at_it(world: World) -> None:
    studio = PlanStage(world, [task("a"), task("b"), task("c")])
    studio.claim()
    line = merge_queue_id("/srv/shop", "main")
    for name in ("a", "b", "c"):
        world.queue.line_up(studio.claims[name], line, "c0ffee")

    assert why(studio, "a")[1] == "It is the first in the merge queue of its branch."
    assert why(studio, "c")[1] == (
        f"It waits in the merge queue of its branch, with 2 before it; {studio.runs()['a']} is the first."
    )


def test_whoever_waits_for_a_plan_is_told_when_it_has_ended(world: World) -> None:
    studio = PlanStage(world, [task("a")])
    with pytest.raises(WaitTimedOut, match=f"The plan {studio.plan} has not ended in time; it is running."):
        studio.plans.wait(studio.plan, world.outcomes, timeout_ms=0)
    with ThreadPoolExecutor(1) as pool:
        ended = pool.submit(studio.plans.wait, studio.plan, world.outcomes, 20_000)
        studio.finish("a")

        assert ended.result().state == "completed"
