"""Reads an agent's output and logs its events. Its tasks:

1. Split both streams into lines of any size, and feed them to the reader; keep nothing longer than necessary.
2. Log every event as one line of JSON, at a bounded rate.
3. Notify when something changed that the attempt's limits depend on.
"""

from __future__ import annotations

from collections.abc import Callable

from agentq.coordinator.bounds import LOG_BYTES, LOG_CHUNK_CHARACTERS
from agentq.coordinator.clock import monotonic_ms
from agentq.coordinator.model.agent_events import AgentEvent, ResultEvent, SpendingEvent, UnknownEvent
from agentq.coordinator.runs.logs import LogChunk, LogStream
from agentq.worker.agents.reader import AgentReader

LINE_BYTES = 16 << 20
"""A longer line is skipped; the worker's file has it."""
BURST_CHARACTERS = LOG_BYTES // 4
RATE_CHARACTERS_PER_S = 32 << 10


class LineSplitter:
    """Joins pieces of any size to lines."""

    def __init__(self) -> None:
        self._line_so_far = bytearray()
        self._skips_line = False
        self.skipped = 0

    def split(self, piece: bytes) -> list[str]:
        """The lines that this piece completes, without their ends."""
        *whole, rest = piece.split(b"\n")
        lines = []
        for each in whole:
            self._add(each)
            lines += self._line()
        self._add(rest)
        return lines

    def last(self) -> list[str]:
        """The text after the last line end."""
        return self._line() if self._line_so_far or self._skips_line else []

    def _add(self, piece: bytes) -> None:
        if not self._skips_line:
            self._line_so_far += piece
        if len(self._line_so_far) > LINE_BYTES:
            self._skips_line = True
            self._line_so_far.clear()

    def _line(self) -> list[str]:
        skips, body = self._skips_line, self._line_so_far
        self._line_so_far, self._skips_line = bytearray(), False
        if skips:
            self.skipped += 1
            return []
        return [body.removesuffix(b"\r").decode(errors="replace")]


class AgentOutputReader:
    """Reads the output of one attempt. Lives on the worker's event loop."""

    def __init__(
        self, reader: AgentReader, send: Callable[[list[LogChunk]], None], on_events: Callable[[list[AgentEvent]], None]
    ) -> None:
        self.reader = reader
        self.last_output_ms: int | None = None
        """When it last wrote to stdout."""
        self._send = send
        self._on_events = on_events
        self._lines: dict[LogStream, LineSplitter] = {"out": LineSplitter(), "err": LineSplitter()}
        self._unsent_spending: SpendingEvent | None = None
        self._allowed, self._allowed_ms = BURST_CHARACTERS, monotonic_ms()
        self._left_out = 0

    def tap(self, stream: LogStream, piece: bytes) -> None:
        """Read a piece of output."""
        self._read(stream, self._lines[stream].split(piece))

    def finish(self) -> None:
        """The output has ended."""
        for stream, lines in self._lines.items():
            self._read(stream, lines.last())
        self.reader.finish()
        if self._unsent_spending is not None:
            self._log_events([self._unsent_spending])
        skipped = sum(lines.skipped for lines in self._lines.values())
        if skipped:
            self._send([LogChunk("note", f"{skipped} lines of more than {LINE_BYTES} bytes were passed over\n")])

    def _read(self, stream: LogStream, lines: list[str]) -> None:
        read = self.reader.read_error if stream == "err" else self.reader.read
        events = [event for line in lines for event in read(line)]
        if lines and stream == "out":
            self.last_output_ms = monotonic_ms()
        if events:
            self._log_events(events)
            self._on_events(events)

    def _log_events(self, events: list[AgentEvent]) -> None:
        chunks = []
        for event in events:
            if isinstance(event, SpendingEvent):
                # It changes with every message; log only the newest, before the result.
                self._unsent_spending = event
                continue
            if isinstance(event, ResultEvent) and self._unsent_spending is not None:
                chunks += self._build_chunks(self._unsent_spending)
                self._unsent_spending = None
            chunks += self._build_chunks(event)
        if chunks:
            self._send(chunks)

    def _build_chunks(self, event: AgentEvent) -> list[LogChunk]:
        text = event.model_dump_json(exclude_none=True) + "\n"
        if len(text) > LOG_CHUNK_CHARACTERS:
            text = UnknownEvent(raw=f"a doing of {len(text)} characters").model_dump_json() + "\n"
        now = monotonic_ms()
        self._allowed = min(self._allowed + (now - self._allowed_ms) * RATE_CHARACTERS_PER_S // 1000, BURST_CHARACTERS)
        self._allowed_ms = now
        if len(text) > self._allowed and not isinstance(event, ResultEvent):
            self._left_out += 1
            return []
        self._allowed -= len(text)
        note = [LogChunk("note", f"{self._left_out} agent events left out here\n")] if self._left_out else []
        self._left_out = 0
        return [*note, LogChunk("event", text)]
