"""A plan that is watched: nothing that happens to its tasks goes by, however it falls together with a look."""

from __future__ import annotations

import pytest
from support.plan_stage import PlanStage, task
from support.world import World

from agentq.cli.plans.watch import PlanWatch
from agentq.coordinator.model.lifecycle import State
from agentq.coordinator.plans.verbs import PlanRecord
from agentq.sdk.redis_backend import RedisBackend


def test_what_ends_a_plan_between_a_look_at_its_events_and_one_at_itself_is_heard(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    studio = PlanStage(world, [task("a"), task("b")])
    watch = PlanWatch(RedisBackend(world.queue, world.settings), studio.plan)
    studio.claim()
    get = watch._plans.get

    def ended_meanwhile(plan: str) -> PlanRecord:
        studio.finish(*studio.claims)
        return get(plan)

    monkeypatch.setattr(watch._plans, "get", ended_meanwhile)
    changes = watch.look(100)
    watch.close()

    assert watch.record.ended is not None
    assert [each.state for each in watch.tasks.values()] == [State.COMPLETED] * 2
    assert [(each.task.id, each.event) for each in changes[-2:]] == [("a", "completed"), ("b", "completed")]
