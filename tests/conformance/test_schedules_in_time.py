"""Ticks and clocks: jumps, changes of the clocks, what nobody was there for, ends."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from conformance.calendar import HOUR, MINUTE, Calendar
from world import START_MS

from agentq.coordinator.errors import WrongState
from agentq.coordinator.identity import created_ms
from agentq.coordinator.limits import KEEP_MS


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
    calendar: Calendar, fields: dict[str, Any], told: list[tuple[str, int]]
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
