"""Schedules: one run of a tick whoever drives it, and what becomes of ticks that nobody was there for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from conformance.calendar import HOUR, MINUTE, Calendar
from conformance.conftest import Open
from world import START_MS, World

from agentq.coordinator.duties.scheduler import Scheduler
from agentq.coordinator.errors import Duplicate, Invalid, NotFound, WrongState
from agentq.coordinator.flow import WhenFull
from agentq.coordinator.identity import created_ms, new_run_id, partition_of, tick_run_id
from agentq.coordinator.lifecycle import OutcomeClass
from agentq.coordinator.limits import HISTORY_KEPT, KEEP_MS
from agentq.coordinator.run import Outcome
from agentq.coordinator.scripts import ScriptSet
from agentq.coordinator.store import Store

CREWS = 10


@pytest.fixture
def calendar(world: World) -> Calendar:
    return Calendar(world)


def test_a_tick_makes_one_run_whose_id_follows_from_it(calendar: Calendar) -> None:
    made = calendar.add(queue="builds", labels={"a": "b"})

    calendar.pass_ms(MINUTE - 1)
    assert calendar.told() == []
    calendar.pass_ms(1)

    (run,) = calendar.runs()
    partition = calendar.schedules.partition("s")
    assert run == tick_run_id(partition, START_MS + MINUTE, "s")
    assert (partition_of(run), created_ms(run)) == (partition, made.next_at_ms)
    found = calendar.world.get(run)
    assert (found.schedule, found.state, found.spec.queue, found.spec.labels) == ("s", "pending", "builds", {"a": "b"})
    assert calendar.get().live == [run]
    assert calendar.get().next_at_ms == START_MS + 2 * MINUTE


@pytest.fixture
def crews(world: World, open_connection: Open, scripts: dict[bool, ScriptSet], flavour: str) -> list[Scheduler]:
    """Ten schedulers, each with a connection of its own."""
    text = scripts[flavour != "fakeredis"]

    def clock() -> int:
        return world.now_ms

    stores = [Store(open_connection(), world.store.keyspace, scripts=text, clock=clock) for _ in range(CREWS)]
    return [Scheduler(store, world.settings.tick_ms) for store in stores]


def test_ten_schedulers_at_once_make_one_run_of_each_tick(calendar: Calendar, crews: list[Scheduler]) -> None:
    names = [f"s{number}" for number in range(20)]
    for name in names:
        calendar.add(name, missed="all", catch_up_ms=HOUR)
    calendar.world.pass_ms(5 * MINUTE)
    made: list[int] = []
    begin = threading.Barrier(CREWS)

    def drive(scheduler: Scheduler) -> None:
        begin.wait()
        made.append(scheduler.run_fully())

    threads = [threading.Thread(target=drive, args=(scheduler,)) for scheduler in crews]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    calendar.fire()

    ticks = [("made", minute) for minute in range(1, 6)]
    assert [calendar.told(name) for name in names] == [ticks] * len(names)
    assert len(calendar.world.records.page(limit=1000).runs) == len(names) * len(ticks)


def test_of_ten_that_computed_the_same_tick_one_makes_its_run(calendar: Calendar, crews: list[Scheduler]) -> None:
    calendar.add()
    calendar.world.pass_ms(MINUTE)
    found = [calendar.due() for _ in crews]

    assert calendar.take(found[0], crews[0]) == 1
    with calendar.world.unchanged():
        assert [calendar.take(due, each) for due, each in zip(found[1:], crews[1:], strict=True)] == [0] * (CREWS - 1)

    assert calendar.told() == [("made", 1)]


def test_a_scheduler_that_dies_before_it_fires_costs_nothing(calendar: Calendar, crews: list[Scheduler]) -> None:
    calendar.add()
    calendar.world.pass_ms(MINUTE)

    with calendar.world.unchanged():
        calendar.due()
    assert crews[1].run_fully() == 1

    assert calendar.told() == [("made", 1)]


CHANGES: dict[str, Callable[[Calendar], object]] = {
    "replaced": lambda calendar: calendar.add(cron="*/15 * * * *", replace=True),
    "paused": lambda calendar: calendar.schedules.pause("s"),
    "paused and resumed": lambda calendar: (calendar.schedules.pause("s"), calendar.schedules.resume("s")),
    "removed": lambda calendar: calendar.schedules.remove("s"),
    "removed and made anew": lambda calendar: (calendar.schedules.remove("s"), calendar.add(cron="*/10 * * * *")),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_a_tick_that_was_computed_before_the_schedule_was_changed_is_not_fired(
    calendar: Calendar, change: Callable[[Calendar], object]
) -> None:
    calendar.add(cron="*/10 * * * *")
    calendar.world.now_ms = calendar.get().next_at_ms or 0
    due = calendar.due()
    assert [each.name for each in due] == ["s"]

    change(calendar)
    with calendar.world.unchanged():
        assert calendar.take(due) == 0

    assert calendar.world.records.page().runs == []


def test_a_life_of_which_every_reply_was_lost_once_is_the_same(world: World, repeating_world: World) -> None:
    told = []
    for each in (world, repeating_world):
        calendar = Calendar(each)
        calendar.add(missed="all", catch_up_ms=HOUR)
        calendar.pass_ms(3 * MINUTE)
        calendar.schedules.pause("s", "for a while")
        calendar.schedules.resume("s")
        calendar.add(replace=True, missed="latest", catch_up_ms=HOUR)
        calendar.schedules.run("s")
        calendar.pass_ms(3 * MINUTE)
        (claim,) = calendar.claim()
        calendar.finish(claim.id)
        told.append((calendar.told(), [event.event for event in each.events()], len(calendar.get().live)))
        calendar.add("other")
        calendar.schedules.remove("other")
        with pytest.raises(NotFound):
            calendar.schedules.remove("other")

    assert told[0] == told[1]


# ---- time


def test_ticks_of_an_interval_do_not_drift(calendar: Calendar) -> None:
    calendar.add(every_ms=10_000)

    for late_ms in (0, 137, 4_000, 9_999) * 10:
        calendar.world.now_ms = (calendar.get().next_at_ms or 0) + late_ms
        calendar.fire()

    ticks = [each.tick_ms for each in calendar.schedules.history("s", 100) if each.what == "made"]
    assert ticks[::-1] == [START_MS + 10_000 * number for number in range(1, 41)]


def test_a_clock_that_jumps_forward_leaves_what_was_missed_unmade(calendar: Calendar) -> None:
    calendar.add()

    calendar.pass_ms(30 * 24 * HOUR + MINUTE // 2)

    assert calendar.told() == [("missed", 1), ("made", 30 * 24 * 60)]
    assert calendar.get().next_at_ms == START_MS + (30 * 24 * 60 + 1) * MINUTE


def test_a_clock_that_jumps_back_makes_no_tick_twice(calendar: Calendar) -> None:
    calendar.add(keep_ms=1000)
    calendar.pass_ms(10 * MINUTE)
    ((_, first),) = calendar.told()[1:]
    due = calendar.due()
    (claim,) = calendar.claim()
    calendar.finish(claim.id)
    calendar.world.pass_ms(2000)
    calendar.world.tick()
    assert calendar.world.records.page().runs == [], "the run is forgotten"

    calendar.world.now_ms = START_MS
    with calendar.world.unchanged():
        for _ in range(10):
            calendar.world.pass_ms(MINUTE)
            calendar.fire()
            calendar.take(due)
    calendar.pass_ms(MINUTE)

    assert (first, calendar.told()[2:]) == (10, [("made", 11)])


def test_a_replacement_under_a_clock_that_went_back_makes_no_tick_twice(calendar: Calendar) -> None:
    calendar.add(cron="*/10 * * * *", missed="latest", catch_up_ms=HOUR)
    calendar.pass_ms(10 * MINUTE)
    (run,) = calendar.runs()

    calendar.world.now_ms = START_MS
    calendar.add(cron="*/5 * * * *", replace=True)

    next_ms = calendar.get().next_at_ms or 0
    assert next_ms > created_ms(run)


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({}, [("missed", 1), ("made", 90)]),
        ({"missed": "latest", "catch_up_ms": HOUR}, [("missed", 1), ("made", 90)]),
        ({"missed": "all", "catch_up_ms": 3 * MINUTE}, [("missed", 1), *(("made", each) for each in (87, 88, 89, 90))]),
        ({"missed": "all", "catch_up_ms": 2 * HOUR}, [("made", each) for each in range(1, 91)]),
        ({"every_ms": HOUR}, [("missed", 60)]),
        ({"every_ms": HOUR, "missed": "latest", "catch_up_ms": 10 * MINUTE}, [("missed", 60)]),
        ({"every_ms": HOUR, "missed": "latest", "catch_up_ms": HOUR}, [("made", 60)]),
        ({"every_ms": HOUR, "missed": "all", "catch_up_ms": HOUR}, [("made", 60)]),
    ],
)
def test_what_was_missed_is_made_as_the_schedule_says(
    calendar: Calendar, fields: dict[str, object], told: list[tuple[str, int]]
) -> None:
    calendar.add(**fields)

    calendar.pass_ms(90 * MINUTE)

    assert calendar.told() == told
    assert (calendar.get().next_at_ms or 0) > calendar.world.now_ms


def test_a_time_that_comes_once_is_run_once_and_the_schedule_ends(calendar: Calendar) -> None:
    calendar.add(at_ms=START_MS + 5 * MINUTE)
    calendar.pass_ms(4 * MINUTE)
    assert calendar.told() == []

    for _ in range(3):
        calendar.pass_ms(2 * MINUTE)

    assert calendar.told() == [("made", 5)]
    assert (calendar.get().state, calendar.get().next_at_ms) == ("ended", None)
    with pytest.raises(WrongState, match="ended"):
        calendar.schedules.pause("s")
    calendar.pass_ms(KEEP_MS)
    assert list(calendar.schedules.all()) == [], "it is forgotten as runs are"


def test_an_ended_schedule_can_be_replaced_by_one_that_goes_on(calendar: Calendar) -> None:
    calendar.add(until_ms=START_MS + 2 * MINUTE)
    calendar.pass_ms(MINUTE)
    calendar.pass_ms(MINUTE)
    assert (calendar.told(), calendar.get().state) == ([("made", 1), ("made", 2)], "ended")

    calendar.add(replace=True)
    calendar.pass_ms(MINUTE)

    assert calendar.told()[2:] == [("made", 3)]


def test_jitter_puts_a_tick_off_by_as_much_whoever_asks(calendar: Calendar) -> None:
    calendar.add(jitter_ms=30_000)
    lates = []
    for minute in range(1, 31):
        tick_ms = START_MS + minute * MINUTE
        assert calendar.get().next_at_ms == tick_ms
        rule = calendar.get().rule
        assert rule is not None
        wake_ms = rule.wake_ms("s", tick_ms)
        lates.append(wake_ms - tick_ms)
        calendar.world.now_ms = wake_ms - 1
        calendar.fire()
        assert len(calendar.runs()) == minute - 1
        calendar.pass_ms(1)
        assert len(calendar.runs()) == minute

    assert 0 <= min(lates) < 10_000 < 20_000 < max(lates) < 30_000


@pytest.mark.parametrize(
    ("cron", "day", "expected"),
    [
        ("30 2 * * *", "2030-03-30T12:00", ["2030-03-31T03:00+02:00", "2030-04-01T02:30+02:00"]),
        ("30 2 * * *", "2030-10-26T12:00", ["2030-10-27T02:30+02:00", "2030-10-28T02:30+01:00"]),
    ],
)
def test_a_job_at_half_past_two_runs_once_when_the_clocks_change(
    calendar: Calendar, cron: str, day: str, expected: list[str]
) -> None:
    berlin = ZoneInfo("Europe/Berlin")
    calendar.world.now_ms = int(datetime.fromisoformat(day).replace(tzinfo=berlin).timestamp() * 1000)
    calendar.add(cron=cron, tz="Europe/Berlin")
    for _ in range(6 * 40):
        calendar.pass_ms(10 * MINUTE)

    ticks = [each.tick_ms or 0 for each in reversed(calendar.schedules.history("s"))]
    assert [datetime.fromtimestamp(tick / 1000, berlin).isoformat(timespec="minutes") for tick in ticks] == expected


# ---- what is already there


def test_a_tick_is_skipped_while_the_run_before_it_lives(calendar: Calendar) -> None:
    calendar.add(overlap="skip")
    calendar.pass_ms(MINUTE)
    calendar.pass_ms(MINUTE)
    (claim,) = calendar.claim()
    calendar.pass_ms(MINUTE)
    calendar.finish(claim.id)
    calendar.pass_ms(MINUTE)

    assert calendar.told() == [("made", 1), ("skipped", 2), ("skipped", 3), ("made", 4)]
    assert calendar.schedules.history("s")[1].run == claim.id


def test_queued_runs_go_one_after_the_other_even_if_one_between_them_is_cancelled(calendar: Calendar) -> None:
    calendar.add(overlap="queue")
    for _ in range(4):
        calendar.pass_ms(MINUTE)
    (first,) = calendar.claim(9)
    runs = calendar.runs()
    assert calendar.states() == ["running", "blocked", "blocked", "blocked"]

    calendar.world.queue.cancel(runs[1])
    assert calendar.states() == ["running", "cancelled", "blocked", "blocked"]
    calendar.world.queue.fail(first, Outcome(class_=OutcomeClass.EXIT))
    assert calendar.states() == ["failed", "cancelled", "pending", "blocked"]
    (third,) = calendar.claim(9)
    calendar.finish(third.id)

    assert calendar.states() == ["failed", "cancelled", "completed", "pending"]


def test_a_queue_of_runs_has_an_end(calendar: Calendar) -> None:
    calendar.add(overlap="queue", missed="all", catch_up_ms=24 * HOUR)

    calendar.pass_ms(103 * MINUTE)

    assert len(calendar.get().live) == 100
    assert calendar.told()[-3:] == [("skipped", 101), ("skipped", 102), ("skipped", 103)]
    assert calendar.schedules.history("s")[0].why == "100 runs before it have not ended"


def test_the_earlier_run_is_cancelled_and_the_later_waits_until_it_is_gone(calendar: Calendar) -> None:
    calendar.add(overlap="cancel_old")
    calendar.pass_ms(MINUTE)
    calendar.pass_ms(MINUTE)
    assert calendar.states() == ["cancelled", "pending"]
    (held,) = calendar.claim()

    calendar.pass_ms(MINUTE)
    assert calendar.states() == ["cancelled", "running", "blocked"]
    calendar.pass_ms(MINUTE // 2)
    calendar.world.queue.release(held)

    assert calendar.states() == ["cancelled", "cancelled", "pending"]
    outcome = calendar.world.get(calendar.runs()[0]).outcome
    assert outcome is not None
    assert calendar.runs()[1] in str(outcome.error)


def test_a_run_that_begins_again_counts_as_live(calendar: Calendar) -> None:
    calendar.add(overlap="skip")
    calendar.pass_ms(MINUTE)
    (run,) = calendar.runs()
    calendar.world.queue.cancel(run)
    calendar.world.queue.requeue(run)

    calendar.pass_ms(MINUTE)

    assert calendar.told() == [("made", 1), ("skipped", 2)]


def test_what_damage_leaves_among_the_live_runs_does_not_hold_up_the_next(calendar: Calendar) -> None:
    calendar.add(overlap="skip")
    world, partition = calendar.world, calendar.schedules.partition("s")
    world.store.connection.command("ZADD", world.store.key(partition, "made", "s"), 0, new_run_id(partition))

    calendar.pass_ms(MINUTE)

    assert calendar.told() == [("made", 1)]


def test_a_run_of_a_schedule_passes_the_same_door_as_any_other(calendar: Calendar) -> None:
    world = calendar.world
    home = next(
        f"key-{each}"
        for each in range(99)
        if calendar.schedules.partition(f"key-{each}") == calendar.schedules.partition("s")
    )
    calendar.add(dedupe_key=home, limits={"gpu": 1}, keep_ms=5000, retry={"failures": 2})
    world.flow.limit("gpu", most=0, when_full=WhenFull.CANCEL_NEWEST)
    calendar.pass_ms(MINUTE)
    assert calendar.states() == ["cancelled"]
    world.flow.unlimit("gpu")
    calendar.pass_ms(MINUTE)
    calendar.pass_ms(MINUTE)

    assert calendar.told() == [("made", 1), ("made", 2), ("skipped", 3)]
    (_, second) = calendar.runs()
    assert calendar.schedules.history("s")[0].run == second
    (claim,) = calendar.claim()
    assert world.queue.fail(claim, Outcome(class_=OutcomeClass.EXIT)) == "scheduled"


# ---- an operator's words


def test_what_was_missed_in_a_pause_stays_unmade(calendar: Calendar) -> None:
    calendar.add()
    calendar.schedules.pause("s", "the disk is full")
    with calendar.world.unchanged():
        calendar.pass_ms(10 * MINUTE)
        calendar.schedules.pause("s", "again")
        calendar.world.now_ms = START_MS
    assert (calendar.get().state, calendar.get().why) == ("paused", "the disk is full")
    calendar.world.pass_ms(10 * MINUTE)

    calendar.schedules.resume("s")
    calendar.fire()
    assert calendar.told() == [("missed", 1)]
    calendar.pass_ms(MINUTE)

    assert calendar.told() == [("missed", 1), ("made", 11)]


def test_what_was_missed_in_a_pause_is_caught_up_with_where_the_schedule_says_so(calendar: Calendar) -> None:
    calendar.add(missed="all", catch_up_ms=5 * MINUTE)
    calendar.schedules.pause("s")
    calendar.pass_ms(10 * MINUTE)

    calendar.schedules.resume("s")
    with calendar.world.unchanged():
        calendar.schedules.resume("s")
    calendar.fire()

    assert calendar.told() == [("missed", 1), *(("made", each) for each in range(5, 11))]


def test_a_short_pause_that_no_tick_fell_into_changes_nothing(calendar: Calendar) -> None:
    calendar.add()
    calendar.schedules.pause("s")
    calendar.pass_ms(MINUTE // 2)
    calendar.schedules.resume("s")

    calendar.pass_ms(MINUTE // 2)

    assert calendar.told() == [("made", 1)]


def test_a_run_that_is_asked_for_is_made_whatever_the_schedule_says(calendar: Calendar) -> None:
    calendar.add(overlap="skip")
    calendar.pass_ms(MINUTE)
    calendar.schedules.pause("s")

    asked = calendar.schedules.run("s", run_id=(run_id := new_run_id(calendar.schedules.partition("s"))))
    with calendar.world.unchanged():
        assert calendar.schedules.run("s", run_id=run_id) == asked

    assert asked.created
    assert calendar.world.get(asked.id).schedule == "s"
    assert calendar.told() == [("made", 1), ("asked", None)]
    assert len(calendar.get().live) == 2


def test_a_schedule_is_replaced_only_if_that_is_wanted(calendar: Calendar) -> None:
    calendar.add()
    calendar.pass_ms(MINUTE // 2)

    with calendar.world.unchanged(), pytest.raises(Duplicate, match="--replace"):
        calendar.add(queue="other")
    calendar.add(replace=True, queue="other")
    calendar.pass_ms(MINUTE // 2)

    assert calendar.told() == [("made", 1)], "an interval that stays the same goes on counting"
    assert calendar.world.get(calendar.runs()[0]).spec.queue == "other"


def test_what_is_replaced_keeps_its_pause_its_history_and_its_runs(calendar: Calendar) -> None:
    calendar.add(overlap="skip")
    calendar.pass_ms(MINUTE)
    calendar.schedules.pause("s")

    calendar.add(replace=True, overlap="skip", every_ms=HOUR)
    calendar.pass_ms(2 * HOUR)
    assert (calendar.get().state, calendar.told(), len(calendar.get().live)) == ("paused", [("made", 1)], 1)
    calendar.schedules.resume("s")
    calendar.pass_ms(HOUR)

    assert calendar.told() == [("made", 1), ("missed", 61), ("skipped", 181)]


def test_what_was_made_goes_on_when_the_schedule_is_removed(calendar: Calendar) -> None:
    calendar.add(overlap="skip")
    calendar.pass_ms(MINUTE)
    (run,) = calendar.runs()

    calendar.schedules.remove("s")
    calendar.pass_ms(MINUTE)
    assert (calendar.world.state(run), list(calendar.schedules.all())) == ("pending", [])
    calendar.add(overlap="skip")
    calendar.pass_ms(MINUTE)

    assert calendar.told() == [("skipped", 3)], "it still is a run of this schedule"


@pytest.mark.parametrize("verb", ["pause", "resume", "run", "remove", "get"])
def test_a_schedule_that_is_not_there_is_refused(calendar: Calendar, verb: str) -> None:
    calendar.add("other")
    with calendar.world.unchanged(), pytest.raises(NotFound, match="There is no schedule s"):
        getattr(calendar.schedules, verb)("s")


@pytest.mark.parametrize(
    "fields",
    [
        {"after": [new_run_id()]},
        {"delay_ms": 5},
        {"due_at_ms": START_MS + HOUR},
        {"cron": "61 * * * *"},
        {"cron": "0 0 30 2 *"},
        {"cron": "* * * *"},
        {"cron": "* * * * *", "every_ms": HOUR},
        {"cron": "* * * * *", "tz": "Mars/Olympus"},
        {"at_ms": START_MS - 1},
        {"every_ms": 0},
        {"until_ms": START_MS - 1, "every_ms": HOUR},
        {"every_ms": MINUTE, "jitter_ms": MINUTE},
        {"missed": "all", "every_ms": HOUR},
    ],
)
def test_a_schedule_that_makes_no_sense_is_refused(calendar: Calendar, fields: dict[str, object]) -> None:
    with calendar.world.unchanged(), pytest.raises(Invalid):
        calendar.add(**fields)


def test_runs_that_belong_to_another_partition_than_the_schedule_are_refused(calendar: Calendar) -> None:
    partitions = calendar.world.store.keyspace.partitions
    if partitions == 1:
        return
    session = next(
        f"x{each}"
        for each in range(99)
        if calendar.schedules.partition(f"x{each}") != calendar.schedules.partition("s")
    )
    with calendar.world.unchanged(), pytest.raises(Invalid, match=r"name it (s-\d+)") as refused:
        calendar.add(session=session)
    name = str(refused.value).split("name it ")[1].split(",")[0]

    calendar.add(name, session=session)
    calendar.pass_ms(MINUTE)

    assert len(calendar.runs(name)) == 1


# ---- what is broken


DAMAGE: dict[str, Callable[[World, str], object]] = {
    "no rule": lambda world, key: world.store.connection.command("HDEL", key, "rule"),
    "a rule that is no JSON": lambda world, key: world.store.connection.command("HSET", key, "rule", "{"),
    "a rule that is none": lambda world, key: world.store.connection.command("HSET", key, "rule", "{}"),
    "a zone that is none": lambda world, key: world.store.connection.command(
        "HSET", key, "rule", '{"cron":"* * * * *","tz":"Mars/Olympus"}'
    ),
    "a line that is none": lambda world, key: world.store.connection.command(
        "HSET", key, "rule", '{"cron":"a b c d e"}'
    ),
    "a door that is no JSON": lambda world, key: world.store.connection.command("HSET", key, "door", "{"),
    "nothing to run": lambda world, key: world.store.connection.command("HDEL", key, "spec"),
    "no next tick": lambda world, key: world.store.connection.command("HDEL", key, "next_at_ms"),
    "a next tick that is none": lambda world, key: world.store.connection.command("HSET", key, "next_at_ms", "soon"),
    "only a name": lambda world, key: (
        world.store.connection.command("DEL", key),
        world.store.connection.command("HSET", key, "x", "y"),
    ),
    "another type": lambda world, key: (
        world.store.connection.command("DEL", key),
        world.store.connection.command("SET", key, "y"),
    ),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_a_schedule_that_is_damaged_says_so_and_holds_up_no_other(
    calendar: Calendar, damage: Callable[[World, str], object]
) -> None:
    world, schedules = calendar.world, calendar.schedules
    neighbours = [
        name for name in map("n{}".format, range(30)) if schedules.partition(name) == schedules.partition("a")
    ]
    for name in ("a", *neighbours[:3]):
        calendar.add(name)
    damage(world, world.store.key(schedules.partition("a"), "schedule", "a"))

    calendar.pass_ms(MINUTE)

    assert [calendar.told(name) for name in neighbours[:3]] == [[("made", 1)]] * 3
    broken = schedules.get("a")
    assert broken.state == "faulty"
    assert broken.why
    assert [each.name for each in schedules.all()] == sorted(["a", *neighbours[:3]])
    assert world.fire() == {}, "it is put off"
    calendar.pass_ms(MINUTE)
    schedules.remove("a")
    calendar.add("a")
    calendar.pass_ms(MINUTE)
    assert (schedules.get("a").state, calendar.told("a")) == ("active", [("made", 3)])


def test_a_schedule_whose_record_is_gone_loses_its_place(calendar: Calendar) -> None:
    calendar.add()
    calendar.world.store.connection.command(
        "DEL", calendar.world.store.key(calendar.schedules.partition("s"), "schedule", "s")
    )

    calendar.pass_ms(MINUTE)

    assert list(calendar.schedules.all()) == []


def test_the_history_has_an_end(calendar: Calendar) -> None:
    calendar.add(missed="all", catch_up_ms=24 * HOUR)

    calendar.pass_ms((HISTORY_KEPT + 20) * MINUTE)

    assert len(calendar.schedules.history("s", 1000)) == HISTORY_KEPT
    assert calendar.told()[-1] == ("made", HISTORY_KEPT + 20)


# ---- when to look again


def test_a_scheduler_looks_again_when_the_next_tick_comes(calendar: Calendar) -> None:
    partition, scheduler = calendar.schedules.partition("s"), calendar.world.scheduler
    assert scheduler.run_once(partition).next_ms == calendar.world.settings.tick_ms
    calendar.add(every_ms=3_000)

    assert scheduler.run_once(partition).next_ms == 3_000
    calendar.world.pass_ms(2_000)
    assert scheduler.run_once(partition).next_ms == 1_000
    calendar.world.pass_ms(1_000)
    assert scheduler.run_once(partition).next_ms == 3_000


def test_whoever_keeps_the_scheduler_is_told_of_an_earlier_tick(calendar: Calendar) -> None:
    world, partition = calendar.world, calendar.schedules.partition("s")
    lease = world.worker("keeper")
    duty = world.store.key(partition, "duty", "scheduler")
    world.store.connection.command("SET", duty, "keeper", "PX", 60_000)
    later = next(name for name in map("t{}".format, range(99)) if calendar.schedules.partition(name) == partition)

    calendar.add(every_ms=3_000)
    calendar.add(later, every_ms=4_000)

    assert [order.order for order in lease.heartbeat([]).orders if order.order == "timers"] == ["timers"]
