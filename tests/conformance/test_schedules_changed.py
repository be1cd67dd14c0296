"""An operator's words about schedules: pause, resume, run, replace, remove; and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from conformance.calendar import HOUR, MINUTE, Calendar
from world import START_MS

from agentq.coordinator.errors import Duplicate, Invalid, NotFound
from agentq.coordinator.identity import new_run_id


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


def test_to_resume_what_is_not_paused_changes_nothing(calendar: Calendar) -> None:
    calendar.add()
    calendar.world.pass_ms(MINUTE)

    with calendar.world.unchanged():
        calendar.schedules.resume("s")
    calendar.fire()

    assert calendar.told() == [("made", 1)]


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
    calendar.world.check()
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
def test_a_schedule_that_makes_no_sense_is_refused(calendar: Calendar, fields: dict[str, Any]) -> None:
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
