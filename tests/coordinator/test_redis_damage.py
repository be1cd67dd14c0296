"""What somebody, or a failover, can do to Redis behind our back: streams, groups, hashes and scripts that vanish."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from support.world import World

from agentq.coordinator.bounds import DEPENDENTS_PER_CALL, INSPECT_PER_CALL
from agentq.coordinator.errors import NotFound
from agentq.coordinator.model.lifecycle import State
from agentq.coordinator.model.spec import Outcome
from agentq.coordinator.runs.verbs import Claim
from agentq.coordinator.storage.connection import NoGroup
from agentq.coordinator.storage.keys import CONSUMER_GROUP
from agentq.coordinator.workers.lease import WorkerLease

LANE = "default:5:"


def command(world: World, *words: str | int) -> Any:
    return world.store.connection.command(*words)


def key(world: World, name: str, *parts: str) -> str:
    return world.store.key(0, name, *parts)


def finish(world: World, claims: list[Claim]) -> None:
    assert not any(world.queue.finish([(claim, Outcome()) for claim in claims]))


def deliver(world: World, worker: str) -> tuple[str, str]:
    """An entry that a blocking read has brought to a worker, who has not adopted it."""
    read = ("XREADGROUP", "GROUP", CONSUMER_GROUP, worker, "COUNT", 1, "STREAMS", key(world, "lane", LANE), ">")
    ((_, ((entry, _),)),) = command(world, *read)
    return LANE, entry


def drain(world: World, *leases: WorkerLease) -> list[str]:
    """Work off whatever can be claimed; returns what was."""
    done: list[str] = []
    while claims := [claim for lease in leases for claim in lease.claim(3)]:
        finish(world, claims)
        done += [claim.id for claim in claims]
    return done


# Groups and streams


def test_a_destroyed_group_loses_no_run_and_runs_none_twice(world: World) -> None:
    """It is made again from the beginning, so held runs are delivered again; their state keeps them where they are."""
    runs = [world.submit() for _ in range(12)]
    first, second = world.worker("w1"), world.worker("w2")
    held = [*first.claim(3), *second.claim(2)]
    world.queue.start(held)
    deliver(world, "w1")

    command(world, "XGROUP", "DESTROY", key(world, "lane", LANE), CONSUMER_GROUP)
    others = drain(world, second, first)

    finish(world, held)
    assert Counter(others + [claim.id for claim in held]) == Counter(runs)
    assert {world.get(run).attempt for run in runs} == {1}
    assert set(world.records.count()["default"]) == {State.COMPLETED}


def test_a_group_that_is_gone_is_told_to_whoever_blocks_and_made_again_by_the_next_claim(world: World) -> None:
    """Nobody goes round in a hot loop: the reader hears of it by name, and a claim makes it good."""
    lease, run = world.worker("w1"), world.submit()
    command(world, "XGROUP", "DESTROY", key(world, "lane", LANE), CONSUMER_GROUP)
    words = (
        "XREADGROUP",
        "GROUP",
        CONSUMER_GROUP,
        "w1",
        "COUNT",
        1,
        "BLOCK",
        5000,
        "STREAMS",
        key(world, "lane", LANE),
        ">",
    )
    reader = world.store.connection.another()

    with pytest.raises(NoGroup):
        reader.block(*words, timeout_ms=5000)
    reader.close()

    assert [claim.id for claim in lease.claim(1)] == [run]


def test_a_new_group_begins_at_the_first_entry(world: World) -> None:
    """One that begins at the end loses whatever came before it."""
    runs = [world.submit() for _ in range(3)]
    command(world, "XGROUP", "DESTROY", key(world, "lane", LANE), CONSUMER_GROUP)
    runs.append(world.submit())

    assert [claim.id for claim in world.worker("w1").claim(9)] == runs


def test_runs_of_a_deleted_lane_get_a_home_again(world: World) -> None:
    lease = world.worker("w1")
    runs = [world.submit() for _ in range(6)]
    held = lease.claim(2)
    deliver(world, "w1")
    command(world, "DEL", key(world, "lane", LANE))
    assert lease.claim(9) == []

    assert world.tidy() == 4

    finish(world, held)
    assert sorted(drain(world, lease)) == sorted(runs[2:])
    assert set(world.states(runs)) == {"completed"}


def test_a_deleted_lane_does_not_keep_a_worker_from_what_other_lanes_delivered(world: World) -> None:
    lease = world.worker("w1")
    run, other = world.submit(), world.submit(priority=9)
    lease.lanes(0)
    (claim,) = lease.claim(1)
    assert claim.id == other
    entry = deliver(world, "w1")
    finish(world, [claim])
    command(world, "DEL", key(world, "lane", "default:9:"))

    assert lease.pending(0) == [entry]
    assert [claim.id for claim in lease.adopt(0, lease.pending(0))] == [run]


def test_an_entry_that_a_stranger_acknowledged_or_deleted_is_given_a_successor(world: World) -> None:
    """Acknowledging somebody else's entry succeeds in Redis; nothing here is concluded from it."""
    lease, runs = world.worker("w1"), [world.submit() for _ in range(4)]
    (held,) = lease.claim(1)
    acknowledged, deleted = deliver(world, "w1")[1], deliver(world, "w1")[1]
    command(world, "XACK", key(world, "lane", LANE), CONSUMER_GROUP, acknowledged)
    command(world, "XDEL", key(world, "lane", LANE), deleted)

    assert world.tidy() == 2

    finish(world, [held])
    assert sorted(drain(world, world.worker("w2"))) == sorted(runs[1:])
    assert {world.get(run).attempt for run in runs} == {1}


# Hashes and sets


def test_a_deleted_run_is_forgotten_by_all_who_knew_it(world: World) -> None:
    """Its entry is dropped by a claim, its holder is told, whoever waits for it learns that it is missing."""
    lease = world.worker("w1")
    held, waiting, parent = (world.submit() for _ in range(3))
    child, ghost = world.submit(after=[parent]), world.submit(after=[parent])
    anyway = world.submit(after=[parent], on_failed="run")
    (claim,) = lease.claim(1)
    assert claim.id == held
    for run in (held, waiting, parent, ghost):
        command(world, "DEL", key(world, "run", run))

    assert isinstance(world.queue.finish([(claim, Outcome())])[0], NotFound)
    world.tidy()

    assert [each.id for each in lease.claim(9)] == [anyway]
    assert world.state(child) == "skipped"
    outcome = world.get(child).outcome
    assert outcome is not None
    assert outcome.error == f"dependency {parent} is missing"
    world.pass_ms(world.settings.forget_ms)
    lease.heartbeat([Claim(anyway, "", "", "")])
    world.pass_ms(world.settings.forget_ms)
    lease.heartbeat()
    assert {run.id for run in world.records.all()} == {child, anyway}
    (snapshot,) = world.snapshots()
    assert not snapshot.of("dependents")
    assert not snapshot.of("dependencies")


def test_the_dedupe_key_of_a_deleted_run_is_free(world: World) -> None:
    old = world.submit(dedupe_key="nightly")
    command(world, "DEL", key(world, "run", old))
    world.tidy()

    new = world.submit(dedupe_key="nightly")

    assert new != old
    assert world.submit(dedupe_key="nightly") == new


def test_dependents_that_are_told_after_their_parent_was_deleted_do_not_stop_the_settler(world: World) -> None:
    parent, lease = world.submit(), world.worker("w1")
    children = [world.submit(after=[parent]) for _ in range(450)]
    finish(world, lease.claim(1))
    command(world, "DEL", key(world, "run", parent))

    world.tick()

    left = Counter(world.states(children))
    assert set(left) == {"pending", "skipped"}
    assert left["pending"] == DEPENDENTS_PER_CALL, "those that were told before"
    world.tidy()


def test_timers_that_were_deleted_are_set_again(world: World) -> None:
    """Due runs, patience, alarms, and the forgetting of what has ended."""
    lease = world.worker("w1")
    ended = world.held("w2", queue="default", keep_ms=60_000).id
    world.queue.cancel(ended, stop_ms=1000)
    due, impatient = world.submit(delay_ms=1000), world.submit(expires_ms=1000, queue="nobody")
    command(world, "DEL", key(world, "timers"))

    world.tidy()
    world.pass_ms(1000)
    world.tick()

    assert world.states([ended, due, impatient]) == ["cancelled", "pending", "failed"]
    command(world, "DEL", key(world, "timers"))
    world.tidy()
    world.pass_ms(60_000)
    world.tick()
    lease.heartbeat()
    with pytest.raises(NotFound):
        world.get(ended)
    assert [claim.id for claim in lease.claim(5)] == [due]


def test_a_dead_worker_that_was_struck_from_the_list_loses_its_runs_all_the_same(world: World) -> None:
    """Without it no reaper would ever look at the worker; a live one puts itself on the list again."""
    lease = world.worker("alive")
    dead, held = world.held("dead", started=True), world.submit()
    (claim,) = lease.claim(1)
    assert claim.id == held
    command(world, "DEL", key(world, "workers"), key(world, "worker_lease", "dead"))

    world.tidy()
    lease.heartbeat([claim])

    assert [record.id for record in world.records.workers()] == ["dead", "alive"]
    world.watch_ms(world.settings.lease_ms // 2)
    lease.heartbeat([claim])
    assert world.watch_ms(world.settings.lease_ms // 2 + world.settings.tick_ms) == ["dead"]
    assert [each.id for each in lease.claim(5)] == [dead.id]
    assert world.state(held) == "claimed"


def test_what_a_worker_held_goes_on_when_the_list_of_it_was_deleted(world: World) -> None:
    """And the worker is told that it is no longer its own."""
    lease = world.worker("w1")
    run = world.submit()
    (claim,) = lease.claim(1)
    command(world, "DEL", key(world, "worker_runs", "w1"))

    world.tidy()

    assert world.state(run) == "pending"
    assert lease.heartbeat([claim]).fenced_claims == [claim]


def test_a_worker_whose_record_was_deleted_registers_again_when_its_lease_is_over(world: World) -> None:
    """What its earlier life held is not forgotten with the record."""
    claim = world.held("w1", started=True)
    command(world, "DEL", key(world, "worker", "w1"))
    world.pass_ms(world.settings.lease_ms)

    successor = world.worker("w1")

    assert [again.id for again in successor.claim(5)] == [claim.id]


# Scripts


def test_scripts_that_were_flushed_are_loaded_by_the_calls_that_need_them(world: World) -> None:
    """Between any two calls; it is also what a restart does."""
    flush = ("SCRIPT", "FLUSH")
    command(world, *flush)
    runs = [world.submit() for _ in range(2)]
    command(world, *flush)
    lease = world.worker("w1")
    for _ in range(2):
        command(world, *flush)
        (claim,) = lease.claim(1)
        command(world, *flush)
        world.queue.start([claim])
        command(world, *flush)
        lease.heartbeat([claim])
        command(world, *flush)
        finish(world, [claim])
        command(world, *flush)
        world.tick()
        world.reap()

    assert world.states(runs) == ["completed", "completed"]
    assert world.event_names(runs[0]) == ["submitted", "claimed", "started", "completed"]


# Indexes of all queues


def test_indexes_of_all_queues_that_are_gone_or_wrong_are_made_again(world: World) -> None:
    """So are those that an earlier version never had."""
    runs = [world.submit(queue=queue) for queue in ("a", "b", "b")]
    (claim,) = world.worker("w1", "a").claim(1)
    command(world, "DEL", key(world, "states", "pending"), key(world, "states", "claimed"))
    world.tidy()
    assert {each.id for each in world.records.all()} == set(runs)

    command(world, "ZREM", key(world, "states", "claimed"), claim.id)
    command(world, "ZADD", key(world, "states", "pending"), 0, claim.id, 0, "run_00000000000000000000000")
    command(world, "SREM", key(world, "queues"), "b")
    world.tidy()
    world.check()
    assert world.records.queues() == ["a", "b"]


def test_a_namespace_of_an_earlier_version_has_its_indexes_after_one_look(world: World) -> None:
    """Also where processes of this version have made some entries of them already."""
    runs = {world.submit(queue="old") for _ in range(INSPECT_PER_CALL + 10)}
    command(world, "DEL", key(world, "states", "pending"))
    runs.add(world.submit(queue="new"))

    world.janitor.run_once(0)

    assert {each.id for each in world.records.all()} == runs


def test_a_run_that_stands_in_two_indexes_is_listed_once(world: World) -> None:
    """As while a process of an earlier version, which does not know them, changes its state."""
    run = world.submit()
    command(world, "ZADD", key(world, "states", "claimed"), 0, run)

    assert [each.id for each in world.records.all()] == [run]
    command(world, "ZREM", key(world, "states", "claimed"), run)
