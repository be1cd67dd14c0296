"""When a limit ends, read from the words of an error: `resets 4pm (UTC)`, `try again at Jul 15th, 2026 12:42 PM`, `try
again in 3 hours 20 minutes`. Only errors that an agent reports as such are ever given to this, never an answer.
"""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

_LIMIT_ERROR = re.compile(
    r"^(?:API Error: )?(?:"
    r"you(?:'ve| have) (?:hit|reached|exceeded) your (?:[\w-]+ ){0,3}limit"
    r"|(?!(?:the |your )?rate )(?:[\w-]+ ){0,4}limit has been reached"
    r"|you're out of (?:extra )?usage"
    r"|(?!rate )(?:claude )?(?:ai )?(?:[\w-]+ ){0,3}limit reached"
    r"|your (?:[\w-]+ ){0,2}limit will reset"
    r"|(?:you have )?exhausted your (?:capacity|(?:[\w-]+ ){0,2}quota)"
    r")",
    re.IGNORECASE,
)
_EPOCH_RESET = re.compile(r"limit reached\|(\d{10}|\d{13})\b", re.IGNORECASE)
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_RESET_AT = re.compile(
    r"\b(?:resets?(?: at| on)?|try again (?:at|on))\s+"
    rf"(?:(?P<month>{'|'.join(_MONTHS)})[a-z]*\.? (?P<day>\d{{1,2}})(?:st|nd|rd|th)?"
    r"(?:,? (?P<year>20\d{2}))?,?\s+(?:at\s+)?"
    rf"|(?P<weekday>{'|'.join(_DAYS)})[a-z]*,?\s+(?:at\s+)?)?"
    r"(?P<hour>\d{1,2})(?::(?P<minute>\d{2}))?\s*(?P<half>[ap]\.?m\b\.?)?"
    r"(?:\s*\((?P<zone>[A-Za-z][\w+/-]*)\))?",
    re.IGNORECASE,
)
_UNIT_SECONDS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
_AMOUNT = r"\d{1,6}(?:\.\d{1,6})?\s*(?:days?|hours?|hrs?|minutes?|mins?|seconds?|secs?|ms|[dhms])(?![a-z])"
_RESET_IN = re.compile(
    rf"\b(?:try again in|retry in|retry after|resets? (?:in|after))\s+((?:{_AMOUNT}[\s,]*(?:and\s+)?)+)", re.IGNORECASE
)
_AMOUNT_PARTS = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|[dhms])", re.IGNORECASE)
_SCANNED_CHARACTERS = 4_000
_RECENT = timedelta(minutes=10)
"""A time of day up to this long ago is meant as past, not as tomorrow's: the text was written before it was read."""


def is_limit_error(error: str) -> bool:
    """Whether the error says that the account is at its limit, rather than asked too quickly."""
    return _LIMIT_ERROR.match(error.replace("’", "'").lstrip()) is not None


def parse_reset(error: str, now_ms: int, zone: str = "") -> int | None:
    """The reset time in an error, if any. A time of day without a zone is in `zone`, the agent's, or this machine's."""
    error = " ".join(error[:_SCANNED_CHARACTERS].replace("’", "'").split())
    if epoch := _EPOCH_RESET.search(error):
        return int(epoch[1]) * (1_000 if len(epoch[1]) == 10 else 1)
    if within := _RESET_IN.search(error):
        return now_ms + int(1_000 * sum(_to_seconds(*each) for each in _AMOUNT_PARTS.findall(within[1])))
    if at := _RESET_AT.search(error):
        return _parse_reset_at(at, now_ms, _find_zone(at["zone"]) or _find_zone(zone))
    return None


def _to_seconds(number: str, unit: str) -> float:
    return float(number) * (0.001 if unit.lower() == "ms" else _UNIT_SECONDS[unit.lower()])


def _find_zone(name: str | None) -> tzinfo | None:
    """None is the zone of this machine, as it is for `datetime`."""
    try:
        return ZoneInfo(name) if name else None
    except (KeyError, ValueError, OSError):
        return None


def _parse_reset_at(at: re.Match[str], now_ms: int, zone: tzinfo | None) -> int | None:
    hour, minute = int(at["hour"]), int(at["minute"] or 0)
    if half := at["half"]:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + (12 if half[0].lower() == "p" else 0)
    elif at["minute"] is None:
        return None  # a bare number may be anything
    now = datetime.fromtimestamp(now_ms / 1_000, zone)
    try:
        found = _find_nearest_date(at, hour, minute, now) if at["month"] else _find_next_time(at, hour, minute, now)
    except ValueError:
        return None
    return int(found.timestamp() * 1_000)


def _find_nearest_date(at: re.Match[str], hour: int, minute: int, now: datetime) -> datetime:
    """A day without a year is the nearest one."""
    month, day = _MONTHS.index(at["month"].lower()) + 1, int(at["day"])
    years = [int(at["year"])] if at["year"] else [now.year - 1, now.year, now.year + 1]
    found = [
        datetime(year, month, day, hour, minute, tzinfo=now.tzinfo)
        for year in years
        if _is_valid_date(year, month, day)
    ]
    if not found:
        raise ValueError("no such day")
    return min(found, key=lambda each: abs(each.timestamp() - now.timestamp()))


def _is_valid_date(year: int, month: int, day: int) -> bool:
    try:
        date(year, month, day)
    except ValueError:
        return False
    return True


def _find_next_time(at: re.Match[str], hour: int, minute: int, now: datetime) -> datetime:
    """The next such time of day. Where clocks go back, a time occurs twice, and the second may be the next."""
    for days in range(9):
        day = now.date() + timedelta(days=days)
        if at["weekday"] and _DAYS.index(at["weekday"].lower()) != day.weekday():
            continue
        for fold in (0, 1):
            found = datetime(day.year, day.month, day.day, hour, minute, tzinfo=now.tzinfo, fold=fold)
            if found.timestamp() > now.timestamp() - _RECENT.total_seconds():
                return found
    raise ValueError("no such time")
