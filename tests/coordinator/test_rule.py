"""When ticks come, and which of them still count: times alone, no server."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from agentq.coordinator.bounds import TICK_DELAY_MS_MAX
from agentq.coordinator.errors import Invalid
from agentq.coordinator.schedules.cron import ScheduleRule, ScheduleStep, next_cron_tick
from agentq.coordinator.schedules.verbs import make_schedule_rule

BERLIN = ZoneInfo("Europe/Berlin")
SPRING = "2030-03-31"
"""At 02:00 it becomes 03:00."""
AUTUMN = "2030-10-27"
"""At 03:00 it becomes 02:00."""
MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000


def moment(text: str, tz: ZoneInfo = BERLIN, fold: int = 0) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=tz, fold=fold).timestamp() * 1000)


def local(tick_ms: int, tz: ZoneInfo = BERLIN) -> str:
    return datetime.fromtimestamp(tick_ms / 1000, tz).strftime("%d %H:%M%z")[:-2]


def day(cron: str, date: str) -> list[str]:
    """The ticks of a day by the clock on the wall, with the distance from UTC."""
    rule = make_schedule_rule(cron=cron, tz="Europe/Berlin")
    ticks: list[str] = []
    tick = rule.after(moment(f"{date}T00:00") - 1)
    while tick is not None and local(tick)[:2] == date[-2:] and len(ticks) < 200:
        ticks.append(local(tick)[3:])
        tick = rule.after(tick)
    return ticks


@pytest.mark.parametrize(
    ("cron", "spring", "autumn"),
    [
        ("30 2 * * *", ["03:00+02"], ["02:30+02"]),
        ("0,30 2 * * *", ["03:00+02"], ["02:00+02", "02:30+02"]),
        ("0 2,3 * * *", ["03:00+02"], ["02:00+02", "03:00+01"]),
        ("15 1-3 * * *", ["01:15+01", "03:00+02", "03:15+02"], ["01:15+02", "02:15+02", "03:15+01"]),
        ("*/30 2 * * *", [], ["02:00+02", "02:30+02", "02:00+01", "02:30+01"]),
        ("@daily", ["00:00+01"], ["00:00+02"]),
    ],
)
def test_fixed_times_run_once_when_the_clocks_change(cron: str, spring: list[str], autumn: list[str]) -> None:
    assert day(cron, SPRING) == spring
    assert day(cron, AUTUMN) == autumn


@pytest.mark.parametrize(("cron", "minutes"), [("*/20 * * * *", 20), ("30 * * * *", 60), ("* * * * *", 1)])
def test_every_so_many_minutes_goes_by_the_time_that_passes(cron: str, minutes: int) -> None:
    rule = make_schedule_rule(cron=cron, tz="Europe/Berlin")
    for date in (SPRING, AUTUMN):
        tick = rule.after(moment(f"{date}T00:00"))
        for _ in range(6 * 60 // minutes):
            assert tick is not None
            following = rule.after(tick)
            assert following == tick + minutes * MINUTE
            tick = following


def test_a_fixed_time_that_has_come_does_not_come_again_in_the_hour_that_is_repeated() -> None:
    at_ms = moment(f"{AUTUMN}T02:15", fold=1)

    assert local(next_cron_tick("30 2 * * *", "Europe/Berlin", at_ms) or 0) == "28 02:30+01"


@pytest.mark.parametrize("tz", ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu"])
@pytest.mark.parametrize("cron", ["30 2 * * *", "*/7 * * * *", "0 */5 * * 1-5", "15 1,2,3 29-31 * *", "0 0 29 2 *"])
def test_wherever_one_begins_the_ticks_are_the_same_and_go_forward(cron: str, tz: str) -> None:
    dice = random.Random(f"{cron} {tz}")
    rule = make_schedule_rule(cron=cron, tz=tz)
    for year_ms in (moment("2030-03-30T20:00"), moment("2030-10-26T20:00"), moment("2030-11-02T20:00")):
        ticks = [rule.after(year_ms) or 0]
        while len(ticks) < 100:
            ticks.append(rule.after(ticks[-1]) or 0)
        assert all(before < after for before, after in pairwise(ticks))
        for _ in range(100):
            at_ms = dice.randrange(year_ms, ticks[-1])
            assert rule.after(at_ms) == next(tick for tick in ticks if tick > at_ms)


def naive_step(rule: ScheduleRule, name: str, next_ms: int, now_ms: int) -> ScheduleStep:
    """The same, counted up one by one."""
    ticks: list[int] = []
    tick: int | None = next_ms
    while tick is not None and rule.wake_ms(name, tick) <= now_ms:
        ticks.append(tick)
        tick = rule.after(tick)
    oldest_ms = now_ms - (rule.catch_up_ms or TICK_DELAY_MS_MAX)
    alive = [each for each in ticks if rule.wake_ms(name, each) >= oldest_ms]
    if not alive:
        return ScheduleStep(None, tick)
    chosen = alive[0] if rule.missed == "all" else alive[-1]
    return ScheduleStep(chosen, rule.after(chosen))


@pytest.mark.parametrize("seed", range(300))
def test_what_is_due_is_what_counting_one_by_one_finds(seed: int) -> None:
    dice = random.Random(seed)
    start_ms = moment("2030-03-30T20:00") + dice.randrange(DAY)
    interval_ms = dice.choice([1_000, 7_000, MINUTE, HOUR, DAY])
    times: dict[str, Any] = dice.choice([
        {"every_ms": interval_ms, "start_ms": start_ms},
        {"cron": dice.choice(["*/5 * * * *", "30 2 * * *", "* * * * *", "0 */3 * * *"]), "tz": "Europe/Berlin"},
        {"at_ms": start_ms + dice.randrange(DAY)},
    ])  # fmt: skip
    late = dice.choice([{}, {"catch_up_ms": dice.randrange(1, DAY), "missed": dice.choice(["latest", "all"])}])
    until = dice.choice([{}, {"until_ms": start_ms + dice.randrange(2 * DAY)}])
    jitter = (
        {"jitter_ms": dice.randrange(0, min(interval_ms, MINUTE))}
        if dice.random() < 0.5 and "cron" not in times
        else {}
    )
    rule = make_schedule_rule(**times, **late, **until, **jitter)
    next_ms = rule.after(start_ms)
    if next_ms is None:
        return

    for span_ms in (0, MINUTE, HOUR, DAY // 3):
        now_ms = next_ms + dice.randrange(span_ms + 1)
        assert rule.step("s", next_ms, now_ms) == naive_step(rule, "s", next_ms, now_ms)


def test_ages_without_a_scheduler_are_passed_over_without_counting() -> None:
    rule = make_schedule_rule(every_ms=1_000, start_ms=0, missed="latest", catch_up_ms=DAY)
    lines = make_schedule_rule(cron="* * * * *", missed="latest", catch_up_ms=31 * DAY)
    now_ms = moment("2030-01-01T00:00") + 500

    assert rule.step("s", 1_000, now_ms) == ScheduleStep(now_ms - 500, now_ms + 500)
    assert lines.step("s", MINUTE, now_ms) == ScheduleStep(now_ms - 500, now_ms - 500 + MINUTE)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"cron": "61 * * * *"}, "has a wrong minute, which goes from 0 to 59; write it like '30 2 * * *'"),
        ({"cron": "* 24 * * *"}, "has a wrong hour"),
        ({"cron": "* * * *"}, "has five fields"),
        ({"cron": "0 * * * * *"}, "has five fields"),
        ({"cron": ""}, "has five fields"),
        ({"cron": "every day"}, "has five fields"),
        ({"cron": "*/0 * * * *"}, "has a wrong minute"),
        ({"cron": "0 0 31 2 *"}, "has a wrong day-of-month"),
        ({"cron": "0 0 * * *", "tz": "europe/berlin"}, "perhaps Europe/Berlin"),
        ({"cron": "0 0 * * *", "tz": "../../etc/passwd"}, "is not a time zone"),
        ({"cron": "0 0 * * *", "tz": "America"}, "is not a time zone"),
        ({"cron": "0 0 * * *", "tz": ""}, "is not a time zone"),
        ({"cron": "0 0 * * *", "every_ms": 1000}, "one of cron, every_ms and at_ms"),
        ({}, "one of cron, every_ms and at_ms"),
        ({"every_ms": 999}, "every_ms"),
        ({"every_ms": 1000, "jitter_ms": 1000}, "not less than the interval"),
        ({"every_ms": 1000, "missed": "all"}, "to catch up takes both"),
        ({"every_ms": 1000, "catch_up_ms": 5}, "to catch up takes both"),
    ],
)
def test_what_is_no_rule_is_refused_in_a_sentence(fields: dict[str, object], words: str) -> None:
    with pytest.raises(Invalid) as refused:
        make_schedule_rule(**fields)

    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_line_may_have_a_name() -> None:
    at_ms = moment("2030-01-01T12:00", ZoneInfo("UTC"))

    assert make_schedule_rule(cron="@hourly").after(at_ms) == at_ms + HOUR
    assert make_schedule_rule(cron="@Daily").after(at_ms) == at_ms + 12 * HOUR
    assert timedelta(milliseconds=(make_schedule_rule(cron="@yearly").after(at_ms) or 0) - at_ms).days == 364
