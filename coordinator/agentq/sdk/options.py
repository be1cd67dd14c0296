"""How a task and a submit say what they want: the fields of RunSpec, with times as people write them."""

from __future__ import annotations

from datetime import timedelta

from agentq.coordinator.errors import Invalid
from agentq.coordinator.moments import duration_ms

Span = str | timedelta


def span_ms(span: Span) -> int:
    """A duration in milliseconds: `"90s"` and the like, or a timedelta. A bare number would have no unit."""
    if isinstance(span, timedelta):
        if span < timedelta():
            raise Invalid(f"A duration cannot be negative, as {span} is.")
        return round(span.total_seconds() * 1000)
    if isinstance(span, str):
        return duration_ms(span)
    raise Invalid(f"{span!r} is not a duration; write one like '90s' or '1h30m', or give a timedelta.")
