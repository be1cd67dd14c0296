"""Ticks and clocks: jumps, changes of the clocks, what nobody was there for, ends."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from conformance.timetable import HOUR, MINUTE, Timetable
from support.world import START_MS

from agentq.coordinator.bounds import KEEP_MS
from agentq.coordinator.errors import WrongState
from agentq.coordinator.model.ids import id_created_ms


def test_ticks_of_an_interval_do_not_drift(timetable: Timetable) -> None:
    timetable.add(every_ms=10_000)

    for late_ms in (0, 137, 4_000, 9_999) * 10:
        timetable.world.now_ms = (timetable.get().next_at_ms or 0) + late_ms
        timetable.fire()

    ticks = [each.tick_ms for each in timetable.schedules.history("s", 100) if each.what == "made"]
    assert ticks[::-1] == [START_MS + 10_000 * number for number in range(1, 41)]


def test_a_clock_that_jumps_forward_leaves_what_was_missed_unmade(timetable: Timetable) -> None:
    timetable.add()

    timetable.pass_ms(30 * 24 * HOUR + MINUTE // 2)

    assert timetable.told() == [("missed", 1), ("made", 30 * 24 * 60)]
    assert timetable.get().next_at_ms == START_MS + (30 * 24 * 60 + 1) * MINUTE


def test_a_clock_that_jumps_back_makes_no_tick_twice(timetable: Timetable) -> None:
    timetable.add(keep_ms=MINUTE)
    timetable.pass_ms(10 * MINUTE)
    ((_, first),) = timetable.told()[1:]
    due = timetable.due()
    (claim,) = timetable.claim()
    timetable.finish(claim.id)
    timetable.world.pass_ms(MINUTE)
    timetable.world.tick()
    assert timetable.world.records.page().runs == [], "the run is forgotten"

    timetable.world.now_ms = START_MS
    with timetable.world.unchanged():
        for _ in range(10):
            timetable.world.pass_ms(MINUTE)
            timetable.fire()
            timetable.take(due)
    timetable.pass_ms(MINUTE)

    assert (first, timetable.told()[2:]) == (10, [("made", 11)])


def test_a_replacement_under_a_clock_that_went_back_makes_no_tick_twice(timetable: Timetable) -> None:
    timetable.add(cron="*/10 * * * *", missed="latest", catch_up_ms=HOUR)
    timetable.pass_ms(10 * MINUTE)
    (run,) = timetable.runs()

    timetable.world.now_ms = START_MS
    timetable.add(cron="*/5 * * * *", replace=True)

    next_ms = timetable.get().next_at_ms or 0
    assert next_ms > id_created_ms(run)


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
    timetable: Timetable, fields: dict[str, Any], told: list[tuple[str, int]]
) -> None:
    timetable.add(**fields)

    timetable.pass_ms(90 * MINUTE)

    assert timetable.told() == told
    assert (timetable.get().next_at_ms or 0) > timetable.world.now_ms


def test_a_time_that_comes_once_is_run_once_and_the_schedule_ends(timetable: Timetable) -> None:
    timetable.add(at_ms=START_MS + 5 * MINUTE)
    timetable.pass_ms(4 * MINUTE)
    assert timetable.told() == []

    for _ in range(3):
        timetable.pass_ms(2 * MINUTE)

    assert timetable.told() == [("made", 5)]
    assert (timetable.get().state, timetable.get().next_at_ms) == ("ended", None)
    with pytest.raises(WrongState, match="ended"):
        timetable.schedules.pause("s")
    timetable.pass_ms(KEEP_MS)
    assert list(timetable.schedules.all()) == [], "it is forgotten as runs are"


def test_an_ended_schedule_can_be_replaced_by_one_that_goes_on(timetable: Timetable) -> None:
    timetable.add(until_ms=START_MS + 2 * MINUTE)
    timetable.pass_ms(MINUTE)
    timetable.pass_ms(MINUTE)
    assert (timetable.told(), timetable.get().state) == ([("made", 1), ("made", 2)], "ended")

    timetable.add(replace=True)
    timetable.pass_ms(MINUTE)

    assert timetable.told()[2:] == [("made", 3)]


def test_jitter_puts_a_tick_off_by_as_much_whoever_asks(timetable: Timetable) -> None:
    timetable.add(jitter_ms=30_000)
    lates = []
    for minute in range(1, 31):
        tick_ms = START_MS + minute * MINUTE
        assert timetable.get().next_at_ms == tick_ms
        rule = timetable.get().rule
        assert rule is not None
        wake_ms = rule.wake_ms("s", tick_ms)
        lates.append(wake_ms - tick_ms)
        timetable.world.now_ms = wake_ms - 1
        timetable.fire()
        assert len(timetable.runs()) == minute - 1
        timetable.pass_ms(1)
        assert len(timetable.runs()) == minute

    assert 0 <= min(lates) < 10_000 < 20_000 < max(lates) < 30_000


@pytest.mark.parametrize(
    ("cron", "day", "expected"),
    [
        ("30 2 * * *", "2030-03-30T12:00", ["2030-03-31T03:00+02:00", "2030-04-01T02:30+02:00"]),
        ("30 2 * * *", "2030-10-26T12:00", ["2030-10-27T02:30+02:00", "2030-10-28T02:30+01:00"]),
    ],
)
def test_a_job_at_half_past_two_runs_once_when_the_clocks_change(
    timetable: Timetable, cron: str, day: str, expected: list[str]
) -> None:
    berlin = ZoneInfo("Europe/Berlin")
    timetable.world.now_ms = int(datetime.fromisoformat(day).replace(tzinfo=berlin).timestamp() * 1000)
    timetable.add(cron=cron, tz="Europe/Berlin")
    for _ in range(6 * 40):
        timetable.pass_ms(10 * MINUTE)

    ticks = [each.tick_ms or 0 for each in reversed(timetable.schedules.history("s"))]
    assert [datetime.fromtimestamp(tick / 1000, berlin).isoformat(timespec="minutes") for tick in ticks] == expected
