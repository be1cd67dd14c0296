"""Moments that are named in words."""

from __future__ import annotations

import time
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from agentq.worker.agents.accounts.limit_resets import is_limit_error, parse_reset

BERLIN = "Europe/Berlin"


def ms(text: str, zone: str = "UTC", fold: int = 0) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold).timestamp() * 1_000)


NOW = ms("2026-07-10T14:20:00")


@pytest.mark.parametrize(
    ("words", "moment"),
    [
        ("You've hit your session limit · resets 4pm (UTC)", ms("2026-07-10T16:00")),
        ("You've hit your session limit · resets 12:35pm", ms("2026-07-11T12:35")),
        ("5-hour limit reached ∙ resets 3pm", ms("2026-07-10T15:00")),
        ("You've hit your weekly limit · resets Jul 15 at 12am (Europe/Berlin)", ms("2026-07-15T00:00", BERLIN)),
        ("Opus weekly limit reached ∙ resets Jul 15, 5:30pm", ms("2026-07-15T17:30")),
        ("Claude usage limit reached. Your limit will reset at 2pm (America/New_York).",
         ms("2026-07-10T14:00", "America/New_York")),
        ("Claude AI usage limit reached|1784000000", 1_784_000_000_000),
        ("You've hit your usage limit. Upgrade to Pro, or try again at 3:42 PM.", ms("2026-07-10T15:42")),
        ("You’ve hit your usage limit. Try again at Jul 14th, 2026 12:42 PM.", ms("2026-07-14T12:42")),
        ("You've hit your usage limit. Please try again at Jan 2nd, 2027 1:00 AM.", ms("2027-01-02T01:00")),
        ("You've hit your usage limit. Try again in 3 hours 20 minutes.", NOW + 12_000_000),
        ("You have exhausted your capacity on this model. Your quota will reset after 3h20m0s.", NOW + 12_000_000),
        ("You've hit your usage limit. Try again in 5 days 2 hours.", NOW + 439_200_000),
        ("Rate limit reached. Please try again in 1.5s.", NOW + 1_500),
        ("Please try again in 6m0s.", NOW + 360_000),
        ("Please retry in 34.07s.", NOW + 34_070),
        ("try again in 250ms", NOW + 250),
        ("Suggested retry after 3600s.", NOW + 3_600_000),
        ("Your limit resets at 16:05", ms("2026-07-10T16:05")),
        ("You've hit your limit · resets Mon 9am (UTC)", ms("2026-07-13T09:00")),
        ("resets 12am (UTC)", ms("2026-07-11T00:00")),
        ("resets 12pm (UTC)", ms("2026-07-11T12:00")),
        ("resets 4pm (Mars/Olympus)", ms("2026-07-10T16:00")),
        ("resets 4pm (America/New)", ms("2026-07-10T16:00")),
    ],
)  # fmt: skip
def test_the_words_of_agents_are_moments(words: str, moment: int) -> None:
    assert parse_reset(words, NOW, "UTC") == moment


@pytest.mark.parametrize(
    "words",
    [
        "",
        "Try again later.",
        "You've hit your usage limit.",
        "resets 25:00",
        "resets 13pm",
        "resets 0am",
        "resets 4",
        "resets Feb 31 at 4pm",
        "try again at the office",
        "try again in a while",
        "the counter resets every 5 minutes",
        f"try again in {'9' * 400} days",
        f"try again in {'9' * 9} days" + " 999999999 days" * 100,
        "try again at Jan 1st, 0000 1:00 AM",
        "try again at Jan 1st, 0001 1:00 AM",
        "try again at Dec 31st, 9999 11:59 PM",
    ],
)
def test_words_without_a_moment_are_none(words: str) -> None:
    assert parse_reset(words, NOW, "UTC") is None


def test_a_time_of_the_day_is_of_the_zone_where_the_agent_runs() -> None:
    assert parse_reset("try again at 6 PM", NOW, BERLIN) == ms("2026-07-10T18:00", BERLIN)
    assert parse_reset("try again at 4:00 PM", NOW, BERLIN) == ms("2026-07-11T16:00", BERLIN)


@pytest.mark.parametrize("zone", ["", "Nowhere/Land", "../../etc/passwd"])
def test_without_a_zone_it_is_of_this_machine(zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert parse_reset("try again at 6 PM", NOW, zone) == ms("2026-07-11T18:00", "Asia/Tokyo")
        assert parse_reset("resets Jul 15 at 12am", NOW, zone) == ms("2026-07-15T00:00", "Asia/Tokyo")
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_time_that_has_just_passed_is_not_that_of_tomorrow() -> None:
    """It was written before it was read."""
    assert parse_reset("resets 2:15pm", NOW, "UTC") == ms("2026-07-10T14:15")
    assert parse_reset("resets 2:05pm", NOW, "UTC") == ms("2026-07-11T14:05")


def test_a_day_without_a_year_is_the_nearest() -> None:
    december = ms("2026-12-30T10:00")

    assert parse_reset("resets Jan 2 at 3am", december, "UTC") == ms("2027-01-02T03:00")
    assert parse_reset("resets Dec 29 at 3am", december, "UTC") == ms("2026-12-29T03:00")
    assert parse_reset("resets Feb 29 at 3am", ms("2028-02-27T00:00"), "UTC") == ms("2028-02-29T03:00")


def test_a_day_on_which_clocks_change_has_its_own_length() -> None:
    before_spring = ms("2026-03-28T22:00", BERLIN)
    assert parse_reset("resets 9am", before_spring, BERLIN) == before_spring + 10 * 3_600_000
    before_autumn = ms("2026-10-24T22:00", BERLIN)
    assert parse_reset("resets 9am", before_autumn, BERLIN) == before_autumn + 12 * 3_600_000


def test_a_time_that_comes_twice_is_the_next_of_the_two() -> None:
    between = ms("2026-10-25T02:45", BERLIN)

    assert parse_reset("resets 2:30am", between - 3_600_000, BERLIN) == ms("2026-10-25T02:30", BERLIN)
    assert parse_reset("resets 2:30am", between, BERLIN) == ms("2026-10-25T02:30", BERLIN, fold=1)


def test_a_time_that_the_clocks_skip_is_soon_after() -> None:
    night = ms("2026-03-29T01:00", BERLIN)
    found = parse_reset("resets 2:30am", night, BERLIN)

    assert found is not None
    assert night < found <= night + 2 * 3_600_000


@pytest.mark.parametrize(
    ("words", "so"),
    [
        ("You've hit your session limit · resets 4pm (UTC)", True),
        ("You’ve hit your usage limit.", True),
        ("You've hit your limit · resets 12am", True),
        ("You've hit your 5-hour limit", True),
        ("Claude AI usage limit reached|1784000000", True),
        ("5-hour limit reached ∙ resets 3pm", True),
        ("Your limit will reset at 2pm", True),
        ("The usage limit has been reached", True),
        ("The rate limit has been reached", False),
        ("You're out of extra usage · resets 3pm", True),
        ("API Error: Request rejected (429) · This request would exceed your organization's rate limit.", False),
        ("Rate limit reached for gpt-5 in organization x", False),
        ("exceeded retry limit, last status: 429 Too Many Requests", False),
        ("The test says: You've hit your usage limit", False),
        ("Reached maximum number of turns (2)", False),
    ],
)
def test_a_limit_of_the_account_is_told_from_a_throttle(words: str, so: bool) -> None:
    assert is_limit_error(words) is so
