"""The log of a run as lines: which of them are wanted, and where each begins in time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from agentq.coordinator.model.durations import format_iso
from agentq.coordinator.runs.logs import RunLogEntry


class LogSelection(NamedTuple):
    """The part of a log to print."""

    tail: int | None = None
    """Only so many of the newest lines, or with JSON entries, of what was logged up to now."""
    since_ms: int | None = None
    attempt: int | None = None
    timestamps: bool = False

    @property
    def by_line(self) -> bool:
        """Whether lines have to be whole before they are shown."""
        return self.tail is not None or self.timestamps

    def among(self, entries: Iterable[RunLogEntry]) -> Iterator[RunLogEntry]:
        """The entries that are wanted, without regard to `tail`."""
        for entry in entries:
            if self.attempt in (None, entry.attempt) and (self.since_ms is None or entry.at_ms >= self.since_ms):
                yield entry


AGENT_STREAM = "told"
"""The stream of lines that tell what an agent did; they are ready for a terminal."""


class LogLine(NamedTuple):
    """A line of one stream, without its end, or a line of what an agent did."""

    stream: str
    at_ms: int
    text: str

    def stamped(self) -> LogLine:
        """With its time before it."""
        return self._replace(text=f"{format_iso(self.at_ms)}  {self.text}")


class LineAssembler:
    """Puts lines together from entries; a line is whole when its end was logged, or when its attempt is over."""

    def __init__(self, tell: Callable[[RunLogEntry], list[str]] | None = None) -> None:
        self._tell = tell
        """What an agent's entry says, in lines; None where entries are shown as they are."""
        self._begun: dict[tuple[int, str], LogLine] = {}

    def of(self, entry: RunLogEntry) -> Iterator[LogLine]:
        """The lines that end with an entry."""
        if self._tell is not None and entry.stream not in ("err", "note"):
            yield from (LogLine(AGENT_STREAM, entry.at_ms, text) for text in self._tell(entry))
            return
        if entry.stream == "event":
            return
        for over in [key for key in self._begun if key[0] < entry.attempt]:
            yield self._begun.pop(over)
        key = (entry.attempt, entry.stream)
        before = self._begun.pop(key, LogLine(entry.stream, entry.at_ms, ""))
        *whole, rest = (before.text + entry.text).split("\n")
        for place, text in enumerate(whole):
            yield LogLine(entry.stream, before.at_ms if place == 0 else entry.at_ms, text)
        if rest:
            yield from self._keep(key, LogLine(entry.stream, entry.at_ms if whole else before.at_ms, rest))

    def _keep(self, key: tuple[int, str], line: LogLine) -> Iterator[LogLine]:
        if line.stream == "note":
            yield line  # a note is whole as it is
        else:
            self._begun[key] = line

    def rest(self) -> Iterator[LogLine]:
        """The lines that never ended."""
        yield from self._begun.values()
        self._begun.clear()


def last_lines(lines: Iterable[LogLine], most: int | None) -> Iterable[LogLine]:
    return lines if most is None else deque(lines, maxlen=most)
