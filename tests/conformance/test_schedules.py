"""Schedules: one run of a tick, whoever drives it, and however often it is said."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from conformance.calendar import HOUR, MINUTE, Calendar
from conformance.conftest import Open
from world import START_MS, World

from agentq.coordinator.duties.scheduler import Due, Scheduler, fire_words
from agentq.coordinator.errors import NotFound
from agentq.coordinator.identity import created_ms, partition_of, tick_run_id
from agentq.coordinator.scripts import ScriptSet
from agentq.coordinator.store import Store

CREWS = 10


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


def made_anew(calendar: Calendar) -> None:
    calendar.schedules.remove("s")
    calendar.add(cron="*/10 * * * *")


CHANGES: dict[str, Callable[[Calendar], object]] = {
    "replaced": lambda calendar: calendar.add(cron="*/15 * * * *", replace=True),
    "replaced by one of the same times": lambda calendar: calendar.add(
        cron="*/10 * * * *", missed="all", catch_up_ms=HOUR, replace=True
    ),
    "paused": lambda calendar: calendar.schedules.pause("s"),
    "paused and resumed": lambda calendar: (calendar.schedules.pause("s"), calendar.schedules.resume("s")),
    "removed": lambda calendar: calendar.schedules.remove("s"),
    "removed and made anew": lambda calendar: made_anew(calendar),
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


def test_a_scheduler_whose_clock_is_ahead_makes_no_tick_early(calendar: Calendar) -> None:
    made = calendar.add()
    assert made.rule is not None
    calendar.world.pass_ms(MINUTE - 1)

    with calendar.world.unchanged():
        assert calendar.take([Due("s", made.revision, str(made.next_at_ms), made.rule.model_dump_json())]) == 0


def test_a_scheduler_that_was_frozen_does_not_turn_a_schedule_back(calendar: Calendar) -> None:
    """It had found a tick too old to run; meanwhile others went on, and the next is due."""
    made = calendar.add(every_ms=HOUR)
    calendar.world.now_ms += HOUR + HOUR // 2
    (due,) = calendar.due()
    words = fire_words(calendar.schedules.partition("s"), due, calendar.world.now_ms)
    assert words[3:6] == ("", "", (made.next_at_ms or 0) + HOUR)
    calendar.fire()
    calendar.pass_ms(HOUR // 2)
    calendar.world.pass_ms(HOUR)

    with calendar.world.unchanged():
        assert calendar.world.store.call("fire", calendar.schedules.partition("s"), *words) == "stale"


def test_what_was_computed_from_a_schedule_as_it_no_longer_is_is_stale(calendar: Calendar) -> None:
    calendar.add()
    calendar.pass_ms(MINUTE)
    found = calendar.schedules.pause("s")
    partition, next_ms = calendar.schedules.partition("s"), found.next_at_ms or 0
    what = ("skip", '{"every_ms":1000}', "default:5:", "{}", "{}")
    stale: list[tuple[str, tuple[str | int, ...]]] = [
        ("reinstate", ("s", "another", next_ms, next_ms, next_ms)),
        ("reinstate", ("s", found.revision, next_ms - 1, next_ms, next_ms)),
        ("schedule", ("s", "another", "new", *what, next_ms, next_ms)),
        ("schedule", ("t", "another", "new", *what, next_ms, next_ms)),
        ("schedule", ("s", found.revision, "new", *what, found.last_at_ms or 0, next_ms)),
    ]

    with calendar.world.unchanged():
        assert [calendar.world.store.call(script, partition, *words) for script, words in stale] == ["stale"] * 5


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
