"""What comes back with time: the units of a rate, and whoever waits at a gate."""

from __future__ import annotations

import pytest
from support.world import World

from agentq.coordinator.bounds import DUE_AT_MS_MAX, OPEN_SUBMIT_MS, UNITS_MAX
from agentq.coordinator.errors import Invalid
from agentq.coordinator.model.ids import partition_of
from agentq.coordinator.model.lifecycle import OutcomeClass
from agentq.coordinator.model.spec import Outcome, RunSpec
from agentq.coordinator.queues.limits import LimitRate
from agentq.coordinator.runs.verbs import Claim
from agentq.coordinator.schedules.cron import ScheduleRule

KEY = "account:acme"
COMMAND = {"kind": "command", "argv": ["true"]}


def submit(world: World, count: int = 1, **fields: object) -> list[str]:
    """Runs that need room, all in one partition."""
    return [world.submit(**({"limits": {KEY: 1}, "session": "one"} | fields)) for _ in range(count)]


def finish(world: World, *claims: Claim) -> None:
    assert world.queue.finish([(claim, Outcome()) for claim in claims]) == [None] * len(claims)


def test_a_rate_lets_in_as_many_units_as_come_back(world: World) -> None:
    world.limits.set("tokens", rate=LimitRate(units=100, per_ms=60_000, burst=100))
    runs = submit(world, 5, limits={"tokens": 40})
    worker = world.worker("w1")

    assert [claim.id for claim in worker.claim(10)] == runs[:2]
    assert world.states(runs[2:]) == ["blocked"] * 3
    world.pass_ms(11_999)
    world.tick()
    assert worker.claim(10) == []
    world.pass_ms(1)
    world.tick()
    assert [claim.id for claim in worker.claim(10)] == runs[2:3]
    for run in runs[3:]:
        world.pass_ms(24_000)
        worker.heartbeat([])
        world.tick()
        assert [claim.id for claim in worker.claim(10)] == [run]


def test_a_run_that_asks_for_more_than_the_burst_is_refused(world: World) -> None:
    world.limits.set("tokens", rate=LimitRate(units=1, per_ms=1000, burst=10))

    with world.unchanged(), pytest.raises(Invalid, match=r"the limit tokens, which has a burst of 10; ask for fewer"):
        submit(world, limits={"tokens": 11})
    submit(world, limits={"tokens": 10})


def test_a_schedule_whose_run_asks_for_more_than_the_burst_skips_its_ticks(world: World) -> None:
    world.schedules.add("hourly", ScheduleRule(every_ms=3_600_000), RunSpec.checked(**COMMAND, limits={"tokens": 11}))
    world.limits.set("tokens", rate=LimitRate(units=1, per_ms=1000, burst=10))
    world.pass_ms(3_600_000)

    assert world.fire() == {"skipped": 1}
    assert world.schedules.history("hourly")[0].why == "it asks for more units of a limit than its burst"


def test_a_run_from_before_the_limit_takes_a_full_bucket_and_owes_nothing(world: World) -> None:
    """However much it asks for, others wait for one bucket to fill and no longer."""
    worker = world.worker("w1")
    (big,) = submit(world, limits={"tokens": UNITS_MAX})
    world.limits.set("tokens", rate=LimitRate(units=1, per_ms=1000, burst=10))
    (small,) = submit(world, limits={"tokens": 1})

    assert [claim.id for claim in worker.claim(10)] == [big]
    world.pass_ms(999)
    world.tick()
    assert world.state(small) == "blocked"
    world.pass_ms(1)
    world.tick()
    assert world.state(small) == "pending"


def test_setting_a_limit_again_fills_its_bucket(world: World) -> None:
    rate = LimitRate(units=1, per_ms=3_600_000, burst=1)
    world.limits.set("tokens", rate=rate)
    runs = submit(world, 2, limits={"tokens": 1})
    worker = world.worker("w1")
    assert [claim.id for claim in worker.claim(10)] == runs[:1]
    world.limits.set("tokens", rate=rate)

    assert [claim.id for claim in worker.claim(10)] == runs[1:]


def test_a_gate_is_shut_until_the_last_time_that_an_id_can_tell(world: World) -> None:
    """The script itself holds that, also where its caller does not."""
    for partition in world.store.partitions():
        world.store.call("limit/block_until", partition, KEY, 10**16 - 1, "for ever")

    (limit,) = world.limits.all()
    assert limit.shut_until_ms == DUE_AT_MS_MAX


def test_the_seconds_in_which_nobody_came_are_saved_up_to_the_burst(world: World) -> None:
    world.limits.set("tokens", rate=LimitRate(units=1, per_ms=1000, burst=3))
    world.pass_ms(3_600_000)
    runs = submit(world, 5, limits={"tokens": 1})

    assert [claim.id for claim in world.worker("w1").claim(10)] == runs[:3]


def test_a_bucket_fills_again_though_the_clock_was_set_back(world: World) -> None:
    world.limits.set("tokens", rate=LimitRate(units=1, per_ms=1000, burst=1))
    first, second = submit(world, 2, limits={"tokens": 1})
    worker = world.worker("w1")
    assert [claim.id for claim in worker.claim(10)] == [first]
    world.now_ms -= 3_600_000
    (third,) = submit(world, limits={"tokens": 1})
    world.limits.open("tokens")
    for _ in range(2):
        world.pass_ms(1000)
        world.tick()

    assert world.states([second, third]) == ["pending", "pending"]


def test_a_gate_lets_nobody_in_before_its_time_and_opens_by_itself(world: World) -> None:
    runs = submit(world, 3)
    worker = world.worker("w1")
    (claim,) = worker.claim(1)
    world.limits.shut(KEY, world.now_ms + 20_000, "usage limit of the account")

    assert worker.claim(10) == []
    assert world.states(runs) == ["claimed", "blocked", "blocked"]
    finish(world, claim)
    assert world.states(runs[1:]) == ["blocked", "blocked"]
    world.pass_ms(20_000)
    world.tick()
    assert [each.id for each in worker.claim(10)] == runs[1:]
    assert world.limits.all() == []


def test_a_gate_is_opened_before_its_time_by_hand(world: World) -> None:
    world.limits.shut(KEY, world.now_ms + 3_600_000, "maintenance")
    runs = submit(world, 2)
    world.limits.open(KEY)

    assert [claim.id for claim in world.worker("w1").claim(10)] == runs


def test_a_deferral_shuts_the_gate_for_what_met_the_limit_and_for_nothing_else(world: World) -> None:
    account, other = "account:a", "account:b"
    runs = [submit(world, limits={key: 1})[0] for key in (account, account, other)]
    worker = world.worker("w1")
    (claim,) = worker.claim(1)
    world.queue.defer(claim, world.now_ms + 10_000, Outcome(class_=OutcomeClass.LIMIT), gate=account)

    assert [each.id for each in worker.claim(10)] == [runs[2]]
    assert world.states(runs[:2]) == ["scheduled", "blocked"]
    world.pass_ms(10_000)
    world.tick()
    assert {each.id for each in worker.claim(10)} == set(runs[:2])


def test_a_timer_that_cannot_be_rung_keeps_no_other_from_ringing(world: World) -> None:
    """Somebody has put something else in the place of a run."""
    broken, due = submit(world, 1, limits={}, delay_ms=1000)[0], submit(world, 1, limits={}, delay_ms=2000)[0]
    partition, command = partition_of(broken), world.store.connection.command
    key = world.store.key(partition, "run", broken)
    kept = command("HGETALL", key)
    command("DEL", key)
    command("SET", key, "something else")
    world.pass_ms(2000)
    world.tick()

    assert world.state(due) == "pending"
    command("DEL", key)
    command("HSET", key, *kept)
    world.pass_ms(OPEN_SUBMIT_MS)
    world.tick()
    assert world.state(broken) == "pending"
