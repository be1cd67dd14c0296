"""Times and durations, read and written."""

from __future__ import annotations

import pytest

from agentq.coordinator.clock import wall_ms
from agentq.coordinator.errors import Invalid
from agentq.coordinator.model.durations import format_duration, format_iso, parse_duration_ms, parse_time_ms


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90s", 90_000),
        ("5m", 300_000),
        ("1h30m", 5_400_000),
        ("2d", 172_800_000),
        ("250ms", 250),
        ("1.5h", 5_400_000),
        ("1m250ms", 60_250),
        ("0s", 0),
    ],
)
def test_a_duration_is_numbers_with_units(text: str, expected: int) -> None:
    assert parse_duration_ms(text) == expected


@pytest.mark.parametrize("text", ["", "5", "s", "5x", "-5m", "5 m", "1h 30m", "1e3s", "٣s", "inf", "99999d", "5m5"])
def test_anything_else_is_no_duration(text: str) -> None:
    with pytest.raises(Invalid):
        parse_duration_ms(text)


def test_a_moment_is_iso_or_the_next_time_of_day() -> None:
    assert format_iso(parse_time_ms("2030-01-31T14:30Z")) == "2030-01-31T14:30:00.000Z"
    assert format_iso(parse_time_ms("2030-01-31T14:30:01.5+02:00")) == "2030-01-31T12:30:01.500Z"
    for text in ("00:00", "9:30", "23:59"):
        assert wall_ms() < parse_time_ms(text) < wall_ms() + 26 * 3_600_000


@pytest.mark.parametrize("text", ["", "noon", "24:00", "12:60", "1:5", "2020-01-01", "9999-12-31", "2030-13-01", "5m"])
def test_anything_else_is_no_moment(text: str) -> None:
    with pytest.raises(Invalid):
        parse_time_ms(text)


@pytest.mark.parametrize(
    ("span_ms", "expected"),
    [
        (-5, "0 ms"),
        (80, "80 ms"),
        (1000, "1 s"),
        (2400, "2.4 s"),
        (59_999, "1 m"),
        (61_000, "1 m 1 s"),
        (3_600_000, "1 h"),
        (3_605_000, "1 h"),
        (5_400_000, "1 h 30 m"),
        (266_400_000, "3 d 2 h"),
    ],
)
def test_a_span_is_spelled_in_its_two_largest_units(span_ms: int, expected: str) -> None:
    assert format_duration(span_ms) == expected


def test_a_time_is_written_to_the_millisecond() -> None:
    assert format_iso(0) == "1970-01-01T00:00:00.000Z"
    assert format_iso(1_900_000_000_007) == "2030-03-17T17:46:40.007Z"


@pytest.mark.parametrize(
    ("at_ms", "written"), [(10**20, "9999-12-31T23:59:59.999Z"), (-(10**20), "0001-01-01T00:00:00.000Z")]
)
def test_a_time_beyond_all_dates_is_written_as_the_nearest(at_ms: int, written: str) -> None:
    assert format_iso(at_ms) == written
