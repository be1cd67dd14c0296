"""Reassembles agent events from a run's log, where one event may span several entries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from pydantic import ValidationError

from agentq.coordinator.model.agent_events import AnyAgentEvent, UnknownEvent, parse_agent_event
from agentq.coordinator.runs.logs import RunLogEntry


class LoggedAgentEvent(NamedTuple):
    """A doing, with the entry in which its line ended."""

    entry: RunLogEntry
    doing: AnyAgentEvent


class AgentEventReader:
    """Reads all entries of one log, in order, and tells the doings among them."""

    def __init__(self) -> None:
        self._attempt = 0
        self._line = ""
        self._end = 0
        self._torn = False
        """Whether the line's beginning may be missing: the log keeps the newest, and a reader may begin anywhere."""

    def read(self, entry: RunLogEntry) -> Iterator[LoggedAgentEvent]:
        """What became whole with this entry."""
        if entry.attempt != self._attempt:
            # An attempt that was killed may have left half a line, with which the next has nothing to do.
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
    """The doings in a log, in order."""
    story = AgentEventReader()
    for entry in entries:
        for told in story.read(entry):
            yield told.doing


def _parse_known_event(line: str) -> AnyAgentEvent | None:
    """The doing in a line; None where it holds none that this version knows."""
    try:
        return parse_agent_event(line)
    except ValidationError:
        return None
