"""What is told of workers: events when they come, drain, leave or are lost, and for an hour how they ended."""

from __future__ import annotations

from support.world import START_MS, World

from agentq.coordinator.bounds import WORKER_RECORD_MS
from agentq.coordinator.model.lifecycle import OutcomeClass
from agentq.coordinator.model.spec import Outcome
from agentq.coordinator.workers.lease import replace_worker
from agentq.coordinator.workers.registry import WorkerOverview, Workers


def shown(world: World) -> dict[str, WorkerOverview]:
    """Workers by id, also those that left or were lost lately."""
    return {each.id: each for each in Workers(world.store, world.settings.reap_grace_ms).all(departed=True)}


def told_of(world: World, worker: str) -> list[tuple[str, str]]:
    """The events of a worker, with their details."""
    return [(event.event, event.detail) for event in world.all_events() if event.of_worker and event.worker == worker]


def test_a_worker_that_comes_drains_and_leaves_is_told_of_each_time_once(world: World) -> None:
    lease = world.worker("w1")
    lease.register()
    lease.drain()
    lease.drain()
    lease.deregister()
    lease.deregister()

    assert told_of(world, "w1") == [
        ("worker_registered", ""),
        ("worker_draining", "asked by the worker itself"),
        ("worker_left", ""),
    ]


def test_a_worker_whose_lease_ends_is_told_of_as_lost_before_its_runs_are(world: World) -> None:
    claim = world.held("w1", started=True)
    world.reap()
    world.watch_ms(world.lost_after_ms())

    names = [event.event for event in world.all_events() if event.event in ("worker_lost", "lost")]
    assert names == ["worker_lost", "lost"]
    assert told_of(world, "w1")[-1] == ("worker_lost", "it was not heard until its lease had ended")
    assert world.state(claim.id) == "pending"


def test_a_worker_that_is_ousted_is_told_of_as_lost_with_the_reason(world: World) -> None:
    world.worker("w1")
    (record,) = world.records.workers()
    for _ in range(2):
        replace_worker(world.store, 0, "w1", record.epoch, "its process is dead")

    assert told_of(world, "w1")[1:] == [("worker_lost", "its process is dead")]


def test_how_a_worker_ended_is_kept_for_an_hour_with_what_it_did(world: World) -> None:
    lease = world.worker("w1")
    for class_ in (OutcomeClass.OK, OutcomeClass.EXIT):
        world.submit()
        (claim,) = lease.claim(1)
        if class_ is OutcomeClass.OK:
            world.queue.finish([(claim, Outcome())])
        else:
            world.queue.fail(claim, Outcome(class_=class_))
    world.pass_ms(5_000)
    world.worker("w2")
    lease.deregister()

    found = shown(world)
    assert list(found) == ["w1", "w2"]
    assert (found["w1"].state, found["w1"].runs_ended, found["w1"].runs) == ("left", 2, [])
    assert (found["w1"].registered_at_ms, found["w1"].ended_at_ms) == (START_MS, START_MS + 5_000)
    assert [record.id for record in world.records.workers()] == ["w2"]


def test_a_worker_that_was_lost_is_shown_as_lost_and_one_that_comes_back_is_not(world: World) -> None:
    world.worker("w1")
    world.reap()
    world.watch_ms(world.lost_after_ms())
    lost = shown(world)["w1"]
    assert (lost.state, lost.ended_why) == ("lost", "it was not heard until its lease had ended")

    world.worker("w1")

    record = shown(world)["w1"]
    assert (record.state, record.ended_at_ms, record.runs_ended) == ("ready", None, 0)


def test_workers_that_left_more_than_an_hour_ago_are_forgotten_when_the_next_one_leaves(world: World) -> None:
    for name in ("w1", "w2"):
        lease = world.worker(name)
        lease.deregister()
        world.pass_ms(WORKER_RECORD_MS + 1)
    departed = world.store.connection.command("ZRANGE", world.store.key(0, "departed_workers"), 0, -1)

    assert departed == ["w2"]
