"""A worker that serves other lanes than before is the same worker, and loses nothing on the way."""

from __future__ import annotations

from support.world import World

from agentq.coordinator.storage.keys import CONSUMER_GROUP
from agentq.coordinator.workers.lease import WorkerLease


def change(lease: WorkerLease, *queues: str) -> list[tuple[str, str]]:
    """What a worker does that has read its settings again."""
    lease.identity = lease.identity.model_copy(update={"queues": queues})
    held = lease.register()
    lease.forget_lanes()
    return held


def test_a_worker_that_registers_with_other_queues_keeps_its_runs_and_claims_from_those(world: World) -> None:
    lease = world.worker("w1", "a")
    held = world.submit(queue="a")
    (claim,) = lease.claim(1)
    before = world.records.workers()[0]

    assert change(lease, "b") == [(held, claim.fence)]

    world.submit(queue="a")
    wanted = world.submit(queue="b")
    assert [each.id for each in lease.claim(10)] == [wanted]
    after = world.records.workers()[0]
    assert (after.epoch, after.identity.queues) == (before.epoch, ("b",))


def test_what_was_delivered_from_a_lane_that_is_served_no_more_is_found_and_adopted(world: World) -> None:
    """The answer to a blocking read was lost, and then the queues changed: nobody else can claim that entry."""
    run = world.submit(queue="a")
    lease = world.worker("w1", "a")
    lanes = lease.lanes(0)
    key = world.store.key(0, "lane", lanes[0])
    world.store.connection.command("XREADGROUP", "GROUP", CONSUMER_GROUP, "w1", "COUNT", 1, "STREAMS", key, ">")

    change(lease, "b")

    stray = lease.pending(0)
    assert [lane for lane, _ in stray] == lanes
    assert [claim.id for claim in lease.adopt(0, stray, 1)] == [run]
    assert lease.lanes(0) == []
