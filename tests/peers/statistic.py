"""From repetitions to one number."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Any


def median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def percentile(values: Sequence[float], percent: float) -> float | None:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))] if ordered else None


def merged(repetitions: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The median of each number, the sum of each count of jobs, the last of anything else, and the repetitions."""
    found: dict[str, Any] = {"reps": list(repetitions)}
    for name in dict.fromkeys(name for each in repetitions for name in each):
        values = [each.get(name) for each in repetitions]
        if name == "check":
            found[name] = {count: sum(value[count] for value in values if value) for count in values[-1] or {}}
        elif all(value is None or (isinstance(value, int | float) and not isinstance(value, bool)) for value in values):
            found[name] = median(values)
        else:
            found[name] = values[-1]
    return found
