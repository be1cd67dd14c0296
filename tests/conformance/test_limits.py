"""Limits: as many as there is room for, in order, whatever happens to those who have some."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.world import World

from agentq.coordinator.errors import Invalid, NotFound
from agentq.coordinator.model.ids import partition_of
from agentq.coordinator.model.lifecycle import OutcomeClass
from agentq.coordinator.model.spec import Outcome
from agentq.coordinator.queues.limits import LimitFullPolicy
from agentq.coordinator.runs.verbs import Claim

KEY = "repo:acme"


def submit(world: World, count: int = 1, **fields: object) -> list[str]:
    """Runs that need room, all in one partition."""
    return [world.submit(**({"limits": {KEY: 1}, "session": "one"} | fields)) for _ in range(count)]


def finish(world: World, *claims: Claim) -> None:
    assert world.queue.finish([(claim, Outcome()) for claim in claims]) == [None] * len(claims)


def holders(world: World, key: str = KEY) -> set[str]:
    return {
        run for partition in world.store.partitions() for run in world.limits.partition_holders(partition, key, 1000)
    }


def test_no_more_are_claimed_than_there_is_room_for(world: World) -> None:
    world.limits.set(KEY, most=3)
    runs = submit(world, 10)
    others = submit(world, 2, limits={})

    claimed = {claim.id for claim in world.worker("w1").claim(100)}

    assert claimed == {*runs[:3], *others}
    assert holders(world) == set(runs[:3])
    assert [world.get(run).reason for run in runs[3:]] == [f"limit {KEY}"] * 7


def test_a_limit_that_is_set_later_holds_for_runs_that_are_pending_already(world: World) -> None:
    runs = submit(world, 5)
    worker = world.worker("w1")
    first = worker.claim(1)
    world.limits.set(KEY, most=2)

    assert [claim.id for claim in worker.claim(100)] == [runs[1]]
    assert world.states(runs) == ["claimed", "claimed", "blocked", "blocked", "blocked"]
    finish(world, *first)
    assert world.states(runs[1:]) == ["claimed", "pending", "blocked", "blocked"]


def test_whoever_makes_room_lets_in_the_most_urgent_and_among_those_the_oldest(world: World) -> None:
    world.limits.set(KEY, most=1)
    holder = submit(world)
    worker = world.worker("w1")
    claims = worker.claim(1)
    low, normal, later, high = [submit(world, priority=priority)[0] for priority in (1, 5, 5, 9)]
    order = []
    while claims:
        order.append(claims[0].id)
        finish(world, *claims)
        claims = worker.claim(1)

    assert order == [*holder, high, normal, later, low]


def test_a_run_that_is_let_in_goes_before_those_that_have_not_waited(world: World) -> None:
    world.limits.set(KEY, most=1)
    _, second = submit(world, 2)
    worker = world.worker("w1")
    (claim,) = worker.claim(1)
    crowd = submit(world, 50, limits={})
    finish(world, claim)

    assert [each.id for each in worker.claim(2)] == [second, crowd[0]]


@pytest.mark.parametrize("way", ["finish", "fail", "retry", "defer", "release", "park", "cancel", "lose", "leave"])
def test_room_is_made_however_the_holder_goes(world: World, way: str) -> None:
    world.limits.set(KEY, most=1)
    first, second = submit(world, 2, retry={"failures": 1})
    worker = world.worker("w1")
    (claim,) = worker.claim(1)
    world.queue.start([claim])

    ways: dict[str, Callable[[], object]] = {
        "finish": lambda: finish(world, claim),
        "fail": lambda: world.queue.fail(claim, Outcome(class_=OutcomeClass.REJECTED)),
        "retry": lambda: world.queue.fail(claim, Outcome(class_=OutcomeClass.EXIT)),
        "defer": lambda: world.queue.defer(claim, world.now_ms + 1000, Outcome(class_=OutcomeClass.LIMIT)),
        "release": lambda: world.queue.release(claim),
        "park": lambda: world.queue.park(claim, "asleep"),
        "cancel": lambda: (
            world.queue.cancel(first),
            world.queue.fail(claim, Outcome(class_=OutcomeClass.CANCELLED)),
        ),
        "lose": lambda: world.watch_ms(world.lost_after_ms() + 10_000),
        "leave": lambda: worker.deregister(),
    }
    ways[way]()

    assert first not in holders(world)
    assert [each.id for each in world.worker("w2").claim(1)] == [second]


def test_a_run_that_comes_back_waits_for_room_like_any_other(world: World) -> None:
    world.limits.set(KEY, most=1)
    first, second = submit(world, 2)
    worker = world.worker("w1")
    (claim,) = worker.claim(1)
    world.queue.release(claim)
    (claim,) = worker.claim(2)

    assert claim.id == second
    assert world.states([first, second]) == ["blocked", "claimed"]
    finish(world, claim)
    assert [each.id for each in worker.claim(2)] == [first]


def test_a_run_needs_room_under_all_its_keys_or_takes_none(world: World) -> None:
    for key in ("a", "b"):
        world.limits.set(key, most=1)
    (a,), (both,), (b,) = (submit(world, limits=dict.fromkeys(keys, 1)) for keys in ("a", "ab", "b"))
    worker = world.worker("w1")
    claims = {claim.id: claim for claim in worker.claim(10)}

    assert set(claims) == {a, b}
    finish(world, claims[a])
    assert holders(world, "a") == set()
    assert world.get(both).reason == "limit b"
    finish(world, claims[b])
    assert [each.id for each in worker.claim(10)] == [both]
    assert holders(world, "a") == holders(world, "b") == {both}


def test_a_limit_that_is_raised_or_removed_lets_in_those_who_wait(world: World) -> None:
    world.limits.set(KEY, most=1)
    runs = submit(world, 300)
    worker = world.worker("w1")
    worker.claim(1000)
    world.limits.set(KEY, most=3)

    assert [claim.id for claim in worker.claim(10)] == runs[1:3]
    world.limits.remove(KEY)
    world.tick()
    assert {claim.id for claim in worker.claim(1000)} == set(runs[3:])
    assert world.limits.all() == []


def test_a_limit_that_is_lowered_takes_nothing_from_who_has_room(world: World) -> None:
    world.limits.set(KEY, most=3)
    runs = submit(world, 5)
    worker = world.worker("w1")
    claims = worker.claim(10)
    world.limits.set(KEY, most=1)

    finish(world, *claims[:2])
    assert world.states(runs[2:]) == ["claimed", "blocked", "blocked"]
    finish(world, claims[2])
    assert [claim.id for claim in worker.claim(10)] == runs[3:4]


def test_a_limit_of_none_lets_nobody_in(world: World) -> None:
    world.limits.set(KEY, most=0)
    runs = submit(world, 2)

    assert world.worker("w1").claim(10) == []
    assert world.states(runs) == ["blocked", "blocked"]


@pytest.mark.parametrize("key", ["queue:default", "global"])
def test_a_limit_of_a_queue_or_of_everything_is_named_by_nobody_and_counts_those_who_run(
    world: World, key: str
) -> None:
    runs = [world.submit(session="one") for _ in range(5)]
    worker = world.worker("w1", "default", "other")
    first = worker.claim(2)
    world.limits.set(key, most=3)
    elsewhere = world.submit(queue="other", session="one")

    claims = worker.claim(10)

    assert [claim.id for claim in claims] == ([runs[2], elsewhere] if key != "global" else [runs[2]])
    finish(world, *first)
    assert {claim.id for claim in worker.claim(10)} <= {*runs[3:], elsewhere}
    assert world.limits.named([key])[0].held == 3
    world.limits.remove(key)
    assert holders(world, key) == set()


def test_when_full_the_newest_is_cancelled_if_the_limit_says_so(world: World) -> None:
    world.limits.set(KEY, most=1, when_full=LimitFullPolicy.CANCEL_NEWEST)
    first, second = submit(world, 2)
    worker = world.worker("w1")
    (claim,) = worker.claim(10)
    third = submit(world)[0]

    assert world.states([first, second, third]) == ["claimed", "cancelled", "cancelled"]
    assert world.get(third).outcome.error == f"the limit {KEY} had no room for it"  # type: ignore[union-attr]
    finish(world, claim)
    assert worker.claim(10) == []
    assert world.state(submit(world)[0]) == "pending"


def test_when_full_only_the_latest_waits_if_the_limit_says_so(world: World) -> None:
    world.limits.set(KEY, most=1, when_full=LimitFullPolicy.KEEP_LATEST)
    first = submit(world)[0]
    worker = world.worker("w1")
    (claim,) = worker.claim(1)
    second, third, fourth = submit(world, 3)

    assert world.states([first, second, third, fourth]) == ["claimed", "cancelled", "cancelled", "blocked"]
    finish(world, claim)
    assert [each.id for each in worker.claim(10)] == [fourth]


def test_when_full_the_oldest_is_stopped_if_the_limit_says_so(world: World) -> None:
    world.limits.set(KEY, most=2, when_full=LimitFullPolicy.CANCEL_RUNNING)
    runs = submit(world, 2)
    worker = world.worker("w1")
    claims = worker.claim(1)
    world.pass_ms(1)
    claims += worker.claim(1)
    newest = submit(world)[0]

    assert world.get(runs[0]).stop_at_ms is not None
    assert world.get(runs[1]).stop_at_ms is None
    assert [order.run for order in worker.heartbeat(claims).orders] == [runs[0]]
    world.queue.fail(claims[0], Outcome(class_=OutcomeClass.CANCELLED))
    assert [each.id for each in worker.claim(10)] == [newest]
    assert world.states(runs) == ["cancelled", "claimed"]


def test_when_many_come_only_as_many_of_the_newest_wait_as_there_is_room_for(world: World) -> None:
    world.limits.set(KEY, most=1, when_full=LimitFullPolicy.CANCEL_RUNNING)
    first = submit(world)[0]
    (claim,) = world.worker("w1").claim(1)
    later = submit(world, 4)

    assert world.states(later) == ["cancelled", "cancelled", "cancelled", "blocked"]
    assert world.get(first).stop_at_ms is not None
    world.queue.fail(claim, Outcome(class_=OutcomeClass.CANCELLED))
    assert world.state(later[-1]) == "pending"


def test_a_run_that_waits_for_room_can_be_cancelled_and_leaves_the_line(world: World) -> None:
    world.limits.set(KEY, most=1)
    _, second, third = submit(world, 3)
    worker = world.worker("w1")
    (claim,) = worker.claim(10)
    world.queue.cancel(second)
    finish(world, claim)

    assert [each.id for each in worker.claim(10)] == [third]
    assert world.limits.all()[0].waiting == 0


def test_a_run_that_was_let_in_and_is_cancelled_before_it_is_claimed_gives_its_room_on(world: World) -> None:
    world.limits.set(KEY, most=1)
    first, second, third = submit(world, 3)
    worker = world.worker("w1")
    (claim,) = worker.claim(10)
    finish(world, claim)
    assert holders(world) == {second}
    world.queue.cancel(second)

    assert [each.id for each in worker.claim(10)] == [third]
    assert world.state(first) == "completed"


def test_a_run_that_waits_for_room_too_long_expires(world: World) -> None:
    world.limits.set(KEY, most=1)
    submit(world)
    world.worker("w1").claim(1)
    (late,) = submit(world, expires_ms=1000)
    world.pass_ms(1000)
    world.tick()

    assert world.state(late) == "failed"
    assert world.limits.all()[0].waiting == 0


def test_a_thousand_that_wait_are_let_in_by_bounded_calls(world: World) -> None:
    world.limits.shut(KEY, world.now_ms + 1000)
    runs = submit(world, 250)
    world.pass_ms(1000)
    world.tick()

    assert {claim.id for claim in world.worker("w1").claim(1000)} == set(runs)


def test_room_that_nobody_has_any_more_is_found_by_the_janitor(world: World) -> None:
    """A holder that no script would leave behind: somebody deleted the run by hand."""
    world.limits.set(KEY, most=1)
    first, second = submit(world, 2)
    world.worker("w1").claim(2)
    command, key = world.store.connection.command, world.store.key
    partition = partition_of(first)
    command("ZADD", key(partition, "limit_holders", KEY), 1, "run_000000000000000000000001")
    command("ZREM", key(partition, "limit_waiters", KEY), second)

    world.tidy()

    assert holders(world) == {first}
    assert world.limits.all()[0].waiting == 1


def test_an_entry_with_the_number_of_another_lanes_entry_stands_for_nothing(world: World) -> None:
    """A run that was let in, cancelled, and begun anew in the same millisecond leaves such an entry behind."""
    (run,) = submit(world)
    worker = world.worker("w1")
    (claim,) = worker.claim(1)
    partition, command = partition_of(run), world.store.connection.command
    entry = command("HGET", world.store.key(partition, "run", run), "entry")
    front = world.store.key(partition, "lane", "default:5+:")
    command("XGROUP", "CREATE", front, "workers", "0", "MKSTREAM")
    command("ZADD", world.store.key(partition, "lanes"), 1, "default:5+:")
    command("XADD", front, entry, "run", run)
    other = world.worker("w2")

    assert other.claim(10) == []
    assert command("XLEN", front) == 0
    finish(world, claim)


def test_bad_limits_are_refused_in_one_sentence(world: World) -> None:
    submit(world)
    with world.unchanged():
        for wrong in (
            lambda: world.limits.set(KEY),
            lambda: world.limits.set(KEY, most=-1),
            lambda: world.limits.set("no good", most=1),
            lambda: world.limits.set(KEY, most=0, when_full=LimitFullPolicy.CANCEL_RUNNING),
            lambda: world.submit(limits={"queue:default": 1}),
            lambda: world.submit(limits={KEY: 0}),
        ):
            with pytest.raises(Invalid):
                wrong()
        with pytest.raises(NotFound, match="There is no limit repo:acme"):
            world.limits.remove(KEY)
