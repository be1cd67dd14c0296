"""Plans and merge lines outlive the server's process: all of them is in what it has on its disk."""

from __future__ import annotations

from contextlib import closing
from signal import SIGKILL

import pytest
from support.plan_stage import DIAMOND, WORK, PlanStage, task
from support.servers import Server
from support.world import checked

from agentq.coordinator.errors import NotAllowed
from agentq.coordinator.plans.verbs import Plans
from agentq.coordinator.runs.merge_queue import MERGE_ORDER, merge_queue_id
from agentq.coordinator.storage.connection import Connection

LINE = merge_queue_id("/srv/shop", "main")


def test_a_plan_and_its_merge_line_go_on_where_they_were_after_the_server_was_killed(durable: Server) -> None:
    with closing(Connection(durable.url)) as connection, checked(connection) as world:
        studio = PlanStage(world, [*DIAMOND, task("x")])
        studio.finish("a")
        studio.claim()
        elsewhere = WORK.model_copy(update={"queue": "elsewhere"})
        for name in ("b", "c"):
            world.queue.line_up(studio.claims[name], LINE, name)
        plan = studio.plans.create("more", [task("y", spec=elsewhere)], durable=True)

        durable.signal(SIGKILL)
        durable.start()

        assert studio.states() == {"a": "completed", "b": "claimed", "c": "claimed", "d": "blocked", "x": "claimed"}
        standing = world.queue.line_up(studio.claims["c"], LINE, "c")
        assert (standing.place, standing.holder) == (1, studio.claims["b"].id)
        first = studio.claims["b"]
        studio.finish("b")
        (order,) = [each for each in studio.lease.heartbeat([]).orders if each.order == MERGE_ORDER]
        assert (order.run, order.detail, first.id) == (studio.claims["c"].id, LINE, standing.holder)
        studio.finish("c", "d", "x")
        assert (studio.state, studio.plans.get(plan).state) == ("completed", "running")


def test_a_plan_that_cannot_be_put_on_the_disk_is_refused_before_anything_changes(connection: Connection) -> None:
    with checked(connection) as world:
        world.submit()
        with world.unchanged(), pytest.raises(NotAllowed, match="cannot promise durable=True, so nothing was changed"):
            Plans(world.queue).create("shop", DIAMOND, durable=True)
