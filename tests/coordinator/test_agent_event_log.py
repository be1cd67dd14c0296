"""Doings are put together again from the entries of a log, however they were cut."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from agentq.coordinator.model.agent_events import AgentEvent, TextEvent, ToolCallEvent, UnknownEvent
from agentq.coordinator.runs.agent_event_reader import read_agent_events
from agentq.coordinator.runs.logs import RunLogEntry

SAID = [TextEvent(text="one ✓"), ToolCallEvent(tool="Bash", about="make"), TextEvent(text="three")]
TEXT = "".join(doing.model_dump_json() + "\n" for doing in SAID)


def entries(*pieces: tuple[str, str], attempt: int = 1, at: int = 0) -> list[RunLogEntry]:
    found = []
    for place, (stream, text) in enumerate(pieces):
        found.append(
            RunLogEntry.model_validate(
                {"id": f"1-{place}", "attempt": attempt, "stream": stream, "text": text, "from_byte": at}
            )
        )
        at += len(text.encode())
    return found


def told(log: Sequence[RunLogEntry]) -> list[AgentEvent]:
    return list(read_agent_events(log))


@pytest.mark.parametrize("size", [1, 7, 50, 1000])
def test_a_doing_may_lie_in_several_entries(size: int) -> None:
    pieces = [("event", TEXT[at : at + size]) for at in range(0, len(TEXT), size)]

    assert told(entries(*pieces)) == SAID


def test_what_else_is_written_between_its_halves_does_no_harm() -> None:
    log = entries(("event", TEXT[:20]), ("out", "x" * 30 + "\n"), ("err", "ä\n"), ("event", TEXT[20:]))

    assert told(log) == SAID


def test_half_a_line_of_a_killed_attempt_is_not_put_before_the_next() -> None:
    first = entries(("event", TEXT + TEXT[:10]))

    assert told([*first, *entries(("event", TEXT), attempt=2, at=len(TEXT.encode()) + 10)]) == [*SAID, *SAID]


def test_a_line_whose_beginning_is_gone_is_passed_over() -> None:
    """The log keeps the newest bytes; what was cut off says its own note."""
    assert told(entries(("event", TEXT[5:]), at=5)) == SAID[1:]
    assert told([*entries(("event", TEXT[:5])), *entries(("event", TEXT[50:]), at=50)]) == told(
        entries(("event", TEXT[50:]), at=50)
    )


def test_a_doing_of_a_newer_version_passes_through() -> None:
    text = '{"type":"danced","with":"joy"}\n\nno json\n'

    assert told(entries(("event", text))) == [
        UnknownEvent(raw='{"type":"danced","with":"joy"}'),
        UnknownEvent(raw="no json"),
    ]
