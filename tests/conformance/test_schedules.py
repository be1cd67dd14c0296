"""Schedules: one run of a tick, whoever drives it, and however often it is said."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from conformance.conftest import Open
from conformance.timetable import HOUR, MINUTE, Timetable
from support.world import START_MS, World

from agentq.coordinator.duties.scheduler import ROUND_INTERVAL_TICKS, DueSchedule, Scheduler, fire_arguments
from agentq.coordinator.errors import NotFound
from agentq.coordinator.model.ids import id_created_ms, make_tick_run_id, partition_of
from agentq.coordinator.storage.scripts import ScriptSet
from agentq.coordinator.storage.store import NamespaceStore

CREWS = 10


def test_a_tick_makes_one_run_whose_id_follows_from_it(timetable: Timetable) -> None:
    made = timetable.add(queue="builds", labels={"a": "b"})

    timetable.pass_ms(MINUTE - 1)
    assert timetable.told() == []
    timetable.pass_ms(1)

    (run,) = timetable.runs()
    partition = timetable.schedules.partition("s")
    assert run == make_tick_run_id(partition, START_MS + MINUTE, f"s {made.revision}")
    assert (partition_of(run), id_created_ms(run)) == (partition, made.next_at_ms)
    found = timetable.world.get(run)
    assert (found.schedule, found.state, found.spec.queue, found.spec.labels) == ("s", "pending", "builds", {"a": "b"})
    assert timetable.get().live == [run]
    assert timetable.get().next_at_ms == START_MS + 2 * MINUTE


@pytest.fixture
def crews(world: World, open_connection: Open, scripts: dict[bool, ScriptSet], flavour: str) -> list[Scheduler]:
    """Ten schedulers, each with a connection of its own."""
    text = scripts[flavour != "fakeredis"]

    def clock() -> int:
        return world.now_ms

    stores = [NamespaceStore(open_connection(), world.store.keyspace, scripts=text, clock=clock) for _ in range(CREWS)]
    return [Scheduler(store, world.settings.tick_ms) for store in stores]


def test_ten_schedulers_at_once_make_one_run_of_each_tick(timetable: Timetable, crews: list[Scheduler]) -> None:
    names = [f"s{number}" for number in range(20)]
    for name in names:
        timetable.add(name, missed="all", catch_up_ms=HOUR)
    timetable.world.pass_ms(5 * MINUTE)
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
    timetable.fire()

    ticks = [("made", minute) for minute in range(1, 6)]
    assert [timetable.told(name) for name in names] == [ticks] * len(names)
    assert len(timetable.world.records.page(limit=1000).runs) == len(names) * len(ticks)


def test_of_ten_that_computed_the_same_tick_one_makes_its_run(timetable: Timetable, crews: list[Scheduler]) -> None:
    timetable.add()
    timetable.world.pass_ms(MINUTE)
    found = [timetable.due() for _ in crews]

    assert timetable.take(found[0], crews[0]) == 1
    with timetable.world.unchanged():
        assert [timetable.take(due, each) for due, each in zip(found[1:], crews[1:], strict=True)] == [0] * (CREWS - 1)

    assert timetable.told() == [("made", 1)]


def test_a_scheduler_that_dies_before_it_fires_costs_nothing(timetable: Timetable, crews: list[Scheduler]) -> None:
    timetable.add()
    timetable.world.pass_ms(MINUTE)

    with timetable.world.unchanged():
        timetable.due()
    assert crews[1].run_fully() == 1

    assert timetable.told() == [("made", 1)]


def made_anew(timetable: Timetable) -> None:
    timetable.schedules.remove("s")
    timetable.add(cron="*/10 * * * *")


CHANGES: dict[str, Callable[[Timetable], object]] = {
    "replaced": lambda timetable: timetable.add(cron="*/15 * * * *", replace=True),
    "replaced by one of the same times": lambda timetable: timetable.add(
        cron="*/10 * * * *", missed="all", catch_up_ms=HOUR, replace=True
    ),
    "paused": lambda timetable: timetable.schedules.pause("s"),
    "paused and resumed": lambda timetable: (timetable.schedules.pause("s"), timetable.schedules.resume("s")),
    "removed": lambda timetable: timetable.schedules.remove("s"),
    "removed and made anew": lambda timetable: made_anew(timetable),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_a_tick_that_was_computed_before_the_schedule_was_changed_is_not_fired(
    timetable: Timetable, change: Callable[[Timetable], object]
) -> None:
    timetable.add(cron="*/10 * * * *")
    timetable.world.now_ms = timetable.get().next_at_ms or 0
    due = timetable.due()
    assert [each.name for each in due] == ["s"]

    change(timetable)
    with timetable.world.unchanged():
        assert timetable.take(due) == 0

    assert timetable.world.records.page().runs == []


def test_a_scheduler_whose_clock_is_ahead_makes_no_tick_early(timetable: Timetable) -> None:
    made = timetable.add()
    assert made.rule is not None
    timetable.world.pass_ms(MINUTE - 1)

    with timetable.world.unchanged():
        assert timetable.take([DueSchedule("s", made.revision, str(made.next_at_ms), made.rule.model_dump_json())]) == 0


def test_a_scheduler_that_was_frozen_does_not_turn_a_schedule_back(timetable: Timetable) -> None:
    """It had found a tick too old to run; meanwhile others went on, and the next is due."""
    made = timetable.add(every_ms=HOUR)
    timetable.world.now_ms += HOUR + HOUR // 2
    (due,) = timetable.due()
    words = fire_arguments(timetable.schedules.partition("s"), due, timetable.world.now_ms)
    assert words[3:6] == ("", "", (made.next_at_ms or 0) + HOUR)
    timetable.fire()
    timetable.pass_ms(HOUR // 2)
    timetable.world.pass_ms(HOUR)

    with timetable.world.unchanged():
        assert timetable.world.store.call("schedule/fire", timetable.schedules.partition("s"), *words) == "stale"


def test_what_was_computed_from_a_schedule_as_it_no_longer_is_is_stale(timetable: Timetable) -> None:
    timetable.add()
    timetable.pass_ms(MINUTE)
    found = timetable.schedules.pause("s")
    partition, next_ms = timetable.schedules.partition("s"), found.next_at_ms or 0
    what = ("skip", '{"every_ms":1000}', "default:5:", "{}", "{}")
    stale: list[tuple[str, tuple[str | int, ...]]] = [
        ("schedule/resume", ("s", "another", next_ms, next_ms, next_ms)),
        ("schedule/resume", ("s", found.revision, next_ms - 1, next_ms, next_ms)),
        ("schedule/put", ("s", "another", "new", *what, next_ms, next_ms)),
        ("schedule/put", ("t", "another", "new", *what, next_ms, next_ms)),
        ("schedule/put", ("s", found.revision, "new", *what, found.last_at_ms or 0, next_ms)),
    ]

    with timetable.world.unchanged():
        assert [timetable.world.store.call(script, partition, *words) for script, words in stale] == ["stale"] * 5


def test_a_life_of_which_every_reply_was_lost_once_is_the_same(world: World, repeating_world: World) -> None:
    told = []
    for each in (world, repeating_world):
        timetable = Timetable(each)
        timetable.add(missed="all", catch_up_ms=HOUR)
        timetable.pass_ms(3 * MINUTE)
        timetable.schedules.pause("s", "for a while")
        timetable.schedules.resume("s")
        timetable.add(replace=True, missed="latest", catch_up_ms=HOUR)
        timetable.schedules.run("s")
        timetable.pass_ms(3 * MINUTE)
        (claim,) = timetable.claim()
        timetable.finish(claim.id)
        told.append((timetable.told(), [event.event for event in each.events()], len(timetable.get().live)))
        timetable.add("other")
        timetable.schedules.remove("other")
        with pytest.raises(NotFound):
            timetable.schedules.remove("other")

    assert told[0] == told[1]


# ---- when to look again


def test_a_scheduler_looks_again_when_the_next_tick_comes(timetable: Timetable) -> None:
    partition, scheduler = timetable.schedules.partition("s"), timetable.world.scheduler
    assert scheduler.run_once(partition).next_ms == ROUND_INTERVAL_TICKS * timetable.world.settings.tick_ms
    timetable.add(every_ms=3_000)

    assert scheduler.run_once(partition).next_ms == 3_000
    timetable.world.pass_ms(2_000)
    assert scheduler.run_once(partition).next_ms == 1_000
    timetable.world.pass_ms(1_000)
    assert scheduler.run_once(partition).next_ms == 3_000


def test_whoever_keeps_the_scheduler_is_told_of_an_earlier_tick(timetable: Timetable) -> None:
    world, partition = timetable.world, timetable.schedules.partition("s")
    lease = world.worker("keeper")
    world.store.connection.command("SET", world.store.key(partition, "duty_owner"), "keeper", "PX", 60_000)
    later = next(name for name in map("t{}".format, range(99)) if timetable.schedules.partition(name) == partition)

    timetable.add(every_ms=3_000)
    timetable.add(later, every_ms=4_000)

    assert [order.order for order in lease.heartbeat([]).orders if order.order == "timers"] == ["timers"]
