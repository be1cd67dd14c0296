"""An operator's words about schedules: pause, resume, run, replace, remove; and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from conformance.timetable import HOUR, MINUTE, Timetable
from support.world import START_MS

from agentq.coordinator.errors import Duplicate, Invalid, NotFound
from agentq.coordinator.model.ids import new_run_id


def test_what_was_missed_in_a_pause_stays_unmade(timetable: Timetable) -> None:
    timetable.add()
    timetable.schedules.pause("s", "the disk is full")
    with timetable.world.unchanged():
        timetable.pass_ms(10 * MINUTE)
        timetable.schedules.pause("s", "again")
        timetable.world.now_ms = START_MS
    assert (timetable.get().state, timetable.get().why) == ("paused", "the disk is full")
    timetable.world.pass_ms(10 * MINUTE)

    timetable.schedules.resume("s")
    timetable.fire()
    assert timetable.told() == [("missed", 1)]
    timetable.pass_ms(MINUTE)

    assert timetable.told() == [("missed", 1), ("made", 11)]


def test_what_was_missed_in_a_pause_is_caught_up_with_where_the_schedule_says_so(timetable: Timetable) -> None:
    timetable.add(missed="all", catch_up_ms=5 * MINUTE)
    timetable.schedules.pause("s")
    timetable.pass_ms(10 * MINUTE)

    timetable.schedules.resume("s")
    with timetable.world.unchanged():
        timetable.schedules.resume("s")
    timetable.fire()

    assert timetable.told() == [("missed", 1), *(("made", each) for each in range(5, 11))]


def test_to_resume_what_is_not_paused_changes_nothing(timetable: Timetable) -> None:
    timetable.add()
    timetable.world.pass_ms(MINUTE)

    with timetable.world.unchanged():
        timetable.schedules.resume("s")
    timetable.fire()

    assert timetable.told() == [("made", 1)]


def test_a_short_pause_that_no_tick_fell_into_changes_nothing(timetable: Timetable) -> None:
    timetable.add()
    timetable.schedules.pause("s")
    timetable.pass_ms(MINUTE // 2)
    timetable.schedules.resume("s")

    timetable.pass_ms(MINUTE // 2)

    assert timetable.told() == [("made", 1)]


def test_a_run_that_is_asked_for_is_made_whatever_the_schedule_says(timetable: Timetable) -> None:
    timetable.add(overlap="skip")
    timetable.pass_ms(MINUTE)
    timetable.schedules.pause("s")

    asked = timetable.schedules.run("s", run_id=(run_id := new_run_id(timetable.schedules.partition("s"))))
    with timetable.world.unchanged():
        assert timetable.schedules.run("s", run_id=run_id) == asked

    assert asked.created
    assert timetable.world.get(asked.id).schedule == "s"
    assert timetable.told() == [("made", 1), ("asked", None)]
    assert len(timetable.get().live) == 2


def test_a_schedule_is_replaced_only_if_that_is_wanted(timetable: Timetable) -> None:
    timetable.add()
    timetable.pass_ms(MINUTE // 2)

    with timetable.world.unchanged(), pytest.raises(Duplicate, match="--replace"):
        timetable.add(queue="other")
    timetable.add(replace=True, queue="other")
    timetable.pass_ms(MINUTE // 2)

    assert timetable.told() == [("made", 1)], "an interval that stays the same goes on counting"
    assert timetable.world.get(timetable.runs()[0]).spec.queue == "other"


def test_what_is_replaced_keeps_its_pause_its_history_and_its_runs(timetable: Timetable) -> None:
    timetable.add(overlap="skip")
    timetable.pass_ms(MINUTE)
    timetable.schedules.pause("s")

    timetable.add(replace=True, overlap="skip", every_ms=HOUR)
    timetable.world.check()
    timetable.pass_ms(2 * HOUR)
    assert (timetable.get().state, timetable.told(), len(timetable.get().live)) == ("paused", [("made", 1)], 1)
    timetable.schedules.resume("s")
    timetable.pass_ms(HOUR)

    assert timetable.told() == [("made", 1), ("missed", 61), ("skipped", 181)]


def test_what_was_made_goes_on_when_the_schedule_is_removed(timetable: Timetable) -> None:
    timetable.add(overlap="skip")
    timetable.pass_ms(MINUTE)
    (run,) = timetable.runs()

    timetable.schedules.remove("s")
    timetable.pass_ms(MINUTE)
    assert (timetable.world.state(run), list(timetable.schedules.all())) == ("pending", [])
    timetable.add(overlap="skip")
    timetable.pass_ms(MINUTE)

    assert timetable.told() == [("skipped", 3)], "it still is a run of this schedule"


@pytest.mark.parametrize("verb", ["pause", "resume", "run", "remove", "get"])
def test_a_schedule_that_is_not_there_is_refused(timetable: Timetable, verb: str) -> None:
    timetable.add("other")
    with timetable.world.unchanged(), pytest.raises(NotFound, match="There is no schedule s"):
        getattr(timetable.schedules, verb)("s")


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
def test_a_schedule_that_makes_no_sense_is_refused(timetable: Timetable, fields: dict[str, Any]) -> None:
    with timetable.world.unchanged(), pytest.raises(Invalid):
        timetable.add(**fields)


def test_runs_that_belong_to_another_partition_than_the_schedule_are_refused(timetable: Timetable) -> None:
    partitions = timetable.world.store.keyspace.partitions
    if partitions == 1:
        return
    session = next(
        f"x{each}"
        for each in range(99)
        if timetable.schedules.partition(f"x{each}") != timetable.schedules.partition("s")
    )
    with timetable.world.unchanged(), pytest.raises(Invalid, match=r"name it (s-\d+)") as refused:
        timetable.add(session=session)
    name = str(refused.value).split("name it ")[1].split(",")[0]

    timetable.add(name, session=session)
    timetable.pass_ms(MINUTE)

    assert len(timetable.runs(name)) == 1
