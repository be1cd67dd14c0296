"""What there is, in the JSON that the outside sees: by `--json`, and over HTTP. The names in it never change.

A module for each subject, so that a command that shows one of them need not load the others. Beside `<thing>_json`
stands `read_<thing>`, which makes the record of it again.
"""

from __future__ import annotations

from agentq.coordinator.model.durations import format_iso, parse_iso_ms


def format_time(at_ms: int | None) -> str | None:
    """A time, if there is one."""
    return None if at_ms is None else format_iso(at_ms)


def read_time(text: str | None) -> int | None:
    """The time that `format_time` wrote."""
    return None if text is None else parse_iso_ms(text)
