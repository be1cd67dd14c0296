"""Who is next: priorities that never starve, and keys that take turns in a queue."""

from __future__ import annotations

from collections import Counter

import pytest
from support.world import World

from agentq.coordinator.bounds import LOW_PRIORITY_EVERY
from agentq.coordinator.errors import Invalid, TryLater
from agentq.coordinator.model.spec import Outcome, RunSpec
from agentq.coordinator.workers.lease import WorkerLease

TOGETHER = {"session": "one"}


def submit(world: World, count: int, **fields: object) -> list[str]:
    """Runs that take turns, all in one partition."""
    return [world.submit(**(TOGETHER | fields)) for _ in range(count)]


def spec(**fields: object) -> RunSpec:
    return RunSpec.checked(**({"kind": "command", "argv": ["true"]} | TOGETHER | fields))


def next_runs(world: World, worker: WorkerLease, count: int, a_call: int = 1) -> list[str]:
    """The next runs that a worker gets, so many in a call, each finished before the next call."""
    order: list[str] = []
    while len(order) < count:
        claims = worker.claim(min(a_call, count - len(order)))
        assert claims, f"only {len(order)} runs were there"
        world.queue.finish([(claim, Outcome()) for claim in claims])
        order += [claim.id for claim in claims]
    return order


def keys_of(order: list[str], runs: dict[str, list[str]]) -> list[str]:
    owner = {run: key for key, ids in runs.items() for run in ids}
    return [owner[run] for run in order]


@pytest.mark.parametrize("a_call", [1, 7, 50])
def test_the_less_urgent_lanes_share_every_tenth_run_among_them(world: World, a_call: int) -> None:
    runs = {str(priority): submit(world, 200, priority=priority) for priority in (9, 6, 3, 0)}
    order = next_runs(world, world.worker("w1"), 180, a_call)

    shares = Counter(keys_of(order, runs))

    assert shares["9"] == 180 - 180 // LOW_PRIORITY_EVERY
    assert all(shares[low] == 180 // LOW_PRIORITY_EVERY // 3 for low in ("6", "3", "0")), shares


def test_a_priority_alone_gets_everything(world: World) -> None:
    runs = submit(world, 30, priority=0)

    assert set(next_runs(world, world.worker("w1"), 30, 5)) == set(runs)


def test_keys_take_turns_however_many_runs_each_has(world: World) -> None:
    runs = {key: submit(world, count, fair_key=key) for key, count in (("big", 30), ("small", 3), ("late", 3))}
    order = keys_of(next_runs(world, world.worker("w1"), 36), runs)

    # One entry of the stream is chosen before the others come.
    assert Counter(order[:10])["small"] == 3, order
    assert Counter(order[:10])["late"] == 3, order
    assert order[10:] == ["big"] * 26


def test_in_a_key_the_order_is_that_of_the_submits(world: World) -> None:
    runs = {key: submit(world, 5, fair_key=key) for key in ("a", "b")}
    order = next_runs(world, world.worker("w1"), 10)

    for ids in runs.values():
        assert [run for run in order if run in ids] == ids


def test_whoever_comes_anew_neither_waits_for_the_others_past_nor_has_saved_up_turns(world: World) -> None:
    first = submit(world, 40, fair_key="old")
    worker = world.worker("w1")
    next_runs(world, worker, 20)
    new = submit(world, 10, fair_key="new")
    order = keys_of(next_runs(world, worker, 20), {"old": first, "new": new})

    assert 8 <= Counter(order)["new"] <= 10
    assert 8 <= Counter(order[:18])["new"] <= 10


def test_one_run_at_a_time_from_a_key_does_not_overtake_those_who_wait(world: World) -> None:
    crowd = submit(world, 30, fair_key="crowd")
    worker = world.worker("w1")
    single: list[str] = []
    order: list[str] = []
    while len(order) < 20:
        single += submit(world, 1, fair_key="single")
        order += next_runs(world, worker, 1)

    assert Counter(keys_of(order, {"crowd": crowd, "single": single}))["crowd"] >= 9


def test_a_key_of_more_weight_gets_more_turns(world: World) -> None:
    world.queues.weigh("default", "heavy", 3)
    runs = {key: submit(world, 40, fair_key=key) for key in ("light", "heavy")}
    order = keys_of(next_runs(world, world.worker("w1"), 40), runs)

    assert 28 <= Counter(order)["heavy"] <= 32


def test_keys_take_turns_in_their_own_queue_and_priority_only(world: World) -> None:
    urgent = submit(world, 5, fair_key="a", priority=9)
    normal = submit(world, 5, fair_key="b")

    worker = world.worker("w1")

    assert set(next_runs(world, worker, 5)) == set(urgent)
    assert set(next_runs(world, worker, 5)) == set(normal)


def test_a_run_in_line_can_be_cancelled_and_its_turn_is_not_lost(world: World) -> None:
    runs = {key: submit(world, 4, fair_key=key) for key in ("a", "b")}
    for run in (runs["a"][0], runs["a"][2], runs["b"][3]):
        world.queue.cancel(run)

    worker = world.worker("w1")
    order = next_runs(world, worker, 5, 5)

    assert set(order) == {runs["a"][1], runs["a"][3], *runs["b"][:3]}
    assert worker.claim(10) == []


def test_every_run_in_line_is_claimed_once_by_workers_that_block(world: World) -> None:
    """Each entry that a blocking read delivers calls the next one up."""
    submit(world, 1, fair_key="a")
    worker = world.worker("w1")
    next_runs(world, worker, 1)
    runs = submit(world, 20, fair_key="a") + submit(world, 20, fair_key="b")
    partition = next(each for each in world.store.partitions() if worker.lanes(each))
    lane = worker.lanes(partition)[0]
    taken = []
    while True:
        key = world.store.key(partition, "lane", lane)
        words = ("XREADGROUP", "GROUP", "workers", "w1", "COUNT", 1, "STREAMS", key, ">")
        reply = world.store.connection.command(*words)
        if not reply:
            break
        taken += [claim.id for claim in worker.adopt(partition, [(lane, reply[0][1][0][0])])]

    assert sorted(taken) == sorted(runs)


def test_a_fair_run_that_had_to_wait_for_room_goes_before_the_line(world: World) -> None:
    world.limits.set("one", most=1)
    first, second = submit(world, 2, fair_key="a", limits={"one": 1})
    worker = world.worker("w1")
    claims = worker.claim(10)
    submit(world, 10, fair_key="b")
    world.queue.finish([(claim, Outcome()) for claim in claims])

    worker.heartbeat()

    assert [claim.id for claim in claims] == [first]
    assert next_runs(world, worker, 1) == [second]


def test_a_retried_run_stands_in_line_again(world: World) -> None:
    (run,) = submit(world, 1, fair_key="a")
    worker = world.worker("w1")
    (claim,) = worker.claim(1)
    world.queue.release(claim)

    assert next_runs(world, worker, 1) == [run]


def test_a_paused_queue_gives_nothing_and_goes_on_when_it_is_resumed(world: World) -> None:
    runs = submit(world, 3)
    worker = world.worker("w1", "default", "other")
    elsewhere = submit(world, 1, queue="other")
    (held,) = worker.claim(1)
    world.queues.pause("default", "the disk is full")

    assert {held.id, *(claim.id for claim in worker.claim(10))} == {runs[0], *elsewhere}
    assert [lane for each in world.store.partitions() for lane in worker.lanes(each)] == ["other:5:"]
    world.queue.finish([(held, Outcome())])
    assert world.state(runs[0]) == "completed"
    world.queues.resume("default")
    assert [claim.id for claim in worker.claim(10)] == runs[1:]


def test_everything_is_paused_at_once_and_queues_paused_by_name_stay_so(world: World) -> None:
    submit(world, 1)
    submit(world, 1, queue="other")
    worker = world.worker("w1", "default", "other")
    world.queues.pause("other")
    world.queues.pause("*", "maintenance")

    assert worker.claim(10) == []
    world.queues.resume("*")
    assert [claim.lane for claim in worker.claim(10)] == ["default:5:"]
    assert set(world.queues.paused()) == {"other"}


def test_an_entry_delivered_before_the_pause_goes_back(world: World) -> None:
    (run,) = submit(world, 1)
    worker = world.worker("w1")
    partition = next(each for each in world.store.partitions() if worker.lanes(each))
    key = world.store.key(partition, "lane", "default:5:")
    world.store.connection.command("XREADGROUP", "GROUP", "workers", "w1", "COUNT", 1, "STREAMS", key, ">")
    world.queues.pause("default")

    assert worker.adopt(partition, [("default:5:", world_entry(world, run, partition))]) == []
    world.queues.resume("default")
    assert [claim.id for claim in worker.claim(1)] == [run]


def world_entry(world: World, run: str, partition: int) -> str:
    return str(world.store.connection.command("HGET", world.store.key(partition, "run", run), "entry"))


def test_workers_are_told_of_a_pause_and_of_its_end(world: World) -> None:
    worker = world.worker("w1")
    world.queues.pause("default")
    orders = worker.heartbeat().orders
    world.queues.resume("default")

    assert {order.order for order in (*orders, *worker.heartbeat(applied=orders).orders)} == {"lanes"}


@pytest.mark.parametrize("weight", [0, -1, 0.001, 1e9])
def test_a_weight_out_of_bounds_is_refused(world: World, weight: float) -> None:
    with pytest.raises(Invalid, match="A weight is a number from"):
        world.queues.weigh("default", "a", weight)


def test_a_drained_queue_takes_nothing_new_and_works_off_what_it_has(world: World) -> None:
    (run,) = submit(world, 1)
    world.queues.drain("default", "moving house")

    with pytest.raises(TryLater, match="the intake of the queue default is closed"):
        world.submit()
    assert [receipt.created for receipt in world.queue.submit_many([spec(), spec(queue="other")])] == [False, True]
    assert [claim.id for claim in world.worker("w1").claim(10)] == [run]
    world.queues.resume("default")
    assert world.state(world.submit()) == "pending"


def test_what_waits_in_a_queue_is_purged_and_what_is_held_is_not(world: World) -> None:
    world.limits.set("one", most=1)
    held, blocked = submit(world, 2, limits={"one": 1})
    worker = world.worker("w1")
    worker.claim(2)
    waiting = submit(world, 250) + submit(world, 3, delay_ms=1000) + submit(world, 3, fair_key="a")
    other = submit(world, 1, queue="other")

    assert world.queues.purge("default", why="not wanted") == len(waiting) + 1
    assert set(world.states([blocked, *waiting])) == {"cancelled"}
    assert world.states([held, *other]) == ["claimed", "pending"]
    assert worker.claim(10) == []


def test_what_waits_in_a_queue_is_moved_with_its_priority_demands_and_key(world: World) -> None:
    world.limits.set("one", most=1)
    held, blocked = submit(world, 2, limits={"one": 1})
    worker = world.worker("w1", "default", "other")
    claims = worker.claim(2)
    urgent, fair, later = (
        submit(world, 1, **fields)[0] for fields in ({"priority": 9}, {"fair_key": "a"}, {"delay_ms": 1000})
    )
    crowd = submit(world, 250)

    assert world.queues.move("default", "other") == 254
    assert {world.get(run).spec.queue for run in (urgent, fair, later, blocked, *crowd)} == {"other"}
    assert world.get(held).spec.queue == "default"
    assert world.get(urgent).spec.priority == 9
    world.queue.finish([(claim, Outcome()) for claim in claims])
    world.pass_ms(1000)
    world.tick()
    assert {claim.id for claim in worker.claim(1000)} == {urgent, fair, later, blocked, *crowd}


def test_moving_a_queue_into_itself_is_refused(world: World) -> None:
    with pytest.raises(Invalid, match="in that queue already"):
        world.queues.move("default", "default")
