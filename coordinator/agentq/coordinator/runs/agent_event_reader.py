"""Reassembles agent events from a run's log, where one event may span several entries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from pydantic import ValidationError

from agentq.coordinator.model.agent_events import AnyAgentEvent, UnknownEvent, parse_agent_event
from agentq.coordinator.runs.logs import RunLogEntry


class LoggedAgentEvent(NamedTuple):
    """An agent event, with the log entry in which its line ended."""

    entry: RunLogEntry
    doing: AnyAgentEvent


class AgentEventReader:
    """Reads the entries of one log in order, and returns the agent events in them."""

    def __init__(self) -> None:
        self._attempt = 0
        self._line = ""
        self._end = 0
        self._torn = False
        """Whether the start of the line may be missing: the log is capped, and a reader may start anywhere."""

    def read(self, entry: RunLogEntry) -> Iterator[LoggedAgentEvent]:
        """The events that this entry completes."""
        if entry.attempt != self._attempt:
            # A killed attempt may have left half a line, which does not continue in the next attempt.
            self._attempt, self._line, self._torn = entry.attempt, "", False
        if entry.from_byte > self._end:
            self._line, self._torn = "", True
        self._end = max(self._end, entry.from_byte + len(entry.text.encode()))
        if entry.stream != "event":
            return
        *whole, self._line = (self._line + entry.text).split("\n")
        for line in whole:
            doing = _parse_known_event(line)
            if doing is not None:
                yield LoggedAgentEvent(entry, doing)
            elif line.strip() and not self._torn:
                yield LoggedAgentEvent(entry, UnknownEvent(raw=line))
            self._torn = False


def read_agent_events(entries: Iterable[RunLogEntry]) -> Iterator[AnyAgentEvent]:
    """The agent events in a log, in order."""
    story = AgentEventReader()
    for entry in entries:
        for event in story.read(entry):
            yield event.doing


def _parse_known_event(line: str) -> AnyAgentEvent | None:
    """The agent event in a line; None if this version does not know it."""
    try:
        return parse_agent_event(line)
    except ValidationError:
        return None
