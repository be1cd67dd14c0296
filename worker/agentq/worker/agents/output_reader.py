"""Reading along what an agent writes, and telling what it does. Its tasks:

1. Split both streams into lines, whatever their size, and feed them to the reader; keep nothing longer than it must.
2. Tell every doing in the run's log, one line of JSON each, at a rate that a log is meant for.
3. Say when something has changed that the attempt's limits depend on.
"""

from __future__ import annotations

from collections.abc import Callable

from agentq.coordinator.bounds import LOG_BYTES, LOG_CHUNK_CHARACTERS
from agentq.coordinator.clock import monotonic_ms
from agentq.coordinator.model.agent_events import AgentEvent, ResultEvent, SpendingEvent, UnknownEvent
from agentq.coordinator.runs.logs import LogChunk, LogStream
from agentq.worker.agents.reader import AgentReader

LINE_BYTES = 16 << 20
"""A longer line is passed over; the worker's file has it."""
BURST_CHARACTERS = LOG_BYTES // 4
RATE_CHARACTERS_PER_S = 32 << 10


class LineSplitter:
    """Whole lines out of pieces of any size."""

    def __init__(self) -> None:
        self._line_so_far = bytearray()
        self._skips = False
        self.skipped = 0

    def of(self, piece: bytes) -> list[str]:
        """The lines that this piece completes, without their ends."""
        *whole, rest = piece.split(b"\n")
        lines = []
        for each in whole:
            self._add(each)
            lines += self._line()
        self._add(rest)
        return lines

    def last(self) -> list[str]:
        """What was written after the last end of a line."""
        return self._line() if self._line_so_far or self._skips else []

    def _add(self, piece: bytes) -> None:
        if not self._skips:
            self._line_so_far += piece
        if len(self._line_so_far) > LINE_BYTES:
            self._skips = True
            self._line_so_far.clear()

    def _line(self) -> list[str]:
        skips, body = self._skips, self._line_so_far
        self._line_so_far, self._skips = bytearray(), False
        if skips:
            self.skipped += 1
            return []
        return [body.removesuffix(b"\r").decode(errors="replace")]


class AgentOutputReader:
    """One attempt's. Lives on the worker's event loop."""

    def __init__(
        self, reader: AgentReader, send: Callable[[list[LogChunk]], None], heard: Callable[[list[AgentEvent]], None]
    ) -> None:
        self.reader = reader
        self.said_ms: int | None = None
        """When it last said anything on stdout."""
        self._send = send
        self._heard = heard
        self._lines: dict[LogStream, LineSplitter] = {"out": LineSplitter(), "err": LineSplitter()}
        self._unspoken: SpendingEvent | None = None
        self._allowed, self._allowed_ms = BURST_CHARACTERS, monotonic_ms()
        self._left_out = 0

    def tap(self, stream: LogStream, piece: bytes) -> None:
        """Something was written."""
        self._take(stream, self._lines[stream].of(piece))

    def ended(self) -> None:
        """Nothing more will be."""
        for stream, lines in self._lines.items():
            self._take(stream, lines.last())
        self.reader.ended()
        if self._unspoken is not None:
            self._tell([self._unspoken])
        skipped = sum(lines.skipped for lines in self._lines.values())
        if skipped:
            self._send([LogChunk("note", f"{skipped} lines of more than {LINE_BYTES} bytes were passed over\n")])

    def _take(self, stream: LogStream, lines: list[str]) -> None:
        read = self.reader.read_error if stream == "err" else self.reader.read
        doings = [doing for line in lines for doing in read(line)]
        if lines and stream == "out":
            self.said_ms = monotonic_ms()
        if doings:
            self._tell(doings)
            self._heard(doings)

    def _tell(self, doings: list[AgentEvent]) -> None:
        chunks = []
        for doing in doings:
            if isinstance(doing, SpendingEvent):
                # It changes with every word, and counts when something has been done with it.
                self._unspoken = doing
                continue
            if isinstance(doing, ResultEvent) and self._unspoken is not None:
                chunks += self._chunks(self._unspoken)
                self._unspoken = None
            chunks += self._chunks(doing)
        if chunks:
            self._send(chunks)

    def _chunks(self, doing: AgentEvent) -> list[LogChunk]:
        text = doing.model_dump_json(exclude_none=True) + "\n"
        if len(text) > LOG_CHUNK_CHARACTERS:
            text = UnknownEvent(raw=f"a doing of {len(text)} characters").model_dump_json() + "\n"
        now = monotonic_ms()
        self._allowed = min(self._allowed + (now - self._allowed_ms) * RATE_CHARACTERS_PER_S // 1000, BURST_CHARACTERS)
        self._allowed_ms = now
        if len(text) > self._allowed and not isinstance(doing, ResultEvent):
            self._left_out += 1
            return []
        self._allowed -= len(text)
        note = [LogChunk("note", f"{self._left_out} doings left out here\n")] if self._left_out else []
        self._left_out = 0
        return [*note, LogChunk("event", text)]
