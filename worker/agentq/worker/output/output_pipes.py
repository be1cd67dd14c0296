"""Reads the output pipes of an attempt and distributes what they carry. Its tasks:

1. Always drain both pipes, so that no program waits, and keep their streams apart and in order.
2. Write all of it to the attempt's file (see `log_file`). The pipes wait only for the disk, if that is slower.
3. Replace secrets before that (see `redaction`): neither the file nor the log nor a reader sees one.
4. Send it as text, in chunks: at once after a pause, otherwise gathered for a moment. Output faster than a log is meant
   for is reduced to its beginning and samples, and notes say how much was left out.
5. Keep the end of it for the outcome, and the time of the last byte for the silence timeout.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path

from agentq.coordinator.bounds import LOG_BYTES, LOG_CHUNK_CHARACTERS, TAIL_CHARACTERS
from agentq.coordinator.clock import monotonic_ms
from agentq.coordinator.runs.logs import LogChunk, LogStream
from agentq.worker.output.log_file import LogFile
from agentq.worker.output.redaction import Redactor
from agentq.worker.output.sanitizer import TextSanitizer, sanitize_text
from agentq.worker.output.secret_values import SecretValues

__all__ = ["LogChunk", "OutputPipes"]

CHUNK_MS = 80
READ_BYTES = 64 << 10
PIPE_BYTES_MAX = 1 << 20
BACKLOG_BYTES = 512 << 10
"""When this much waits for the disk, the pipes wait too."""
BURST_BYTES = LOG_BYTES // 2
"""What a run may write at any speed with all of it in its log."""
RATE_BYTES_PER_S = 256 << 10
"""The rate it may write at after that."""
SAMPLE_BYTES = 128 << 10
"""What is kept of more than that until the log may take it: the newest."""
LINE_BYTES = 4 << 10
JOINED_BYTES_MAX = 4 << 10
"""Smaller pieces of the tail are joined, so that a million tiny writes do not cost a million objects."""

SendChunks = Callable[[list[LogChunk]], None]
OutputTap = Callable[[LogStream, bytes], None]
"""Called with every piece of output."""


class OutputPipes:
    """The two pipes of one attempt. Owns their descriptors, which must be non-blocking."""

    def __init__(
        self,
        stdout_fd: int,
        stderr_fd: int,
        file: Path,
        send: SendChunks,
        tap: OutputTap | None = None,
        secrets: SecretValues | None = None,
    ) -> None:
        self.file = LogFile(file, self._on_written)
        self.last_byte_ms = monotonic_ms()
        self.bytes_out = 0
        self.bytes_err = 0
        self._send = send
        self._tap = tap
        self._loop = asyncio.get_running_loop()
        self._open: dict[int, LogStream] = {stdout_fd: "out", stderr_fd: "err"}
        self._ended = asyncio.Event()
        self._paused = False
        self._noted_file_error = False
        streams: tuple[LogStream, ...] = ("out", "err")
        self._redactors = {stream: Redactor(secrets) for stream in streams} if secrets is not None else {}
        self._sanitizers: dict[LogStream, TextSanitizer] = {"out": TextSanitizer(), "err": TextSanitizer()}
        self._unsent = OutputTail(SAMPLE_BYTES)
        self._tail = OutputTail(TAIL_CHARACTERS * 4)
        self._timer: asyncio.TimerHandle | None = None
        self._sent_ms = self.last_byte_ms - CHUNK_MS
        self._allowed, self._allowed_ms = BURST_BYTES, self.last_byte_ms
        self._listen()

    def tail(self) -> str:
        """The end of the output, both streams in order."""
        sanitizers: dict[LogStream, TextSanitizer] = {"out": TextSanitizer(), "err": TextSanitizer()}
        return "".join(sanitizers[stream].text(piece) for stream, piece in self._tail)[-TAIL_CHARACTERS:]

    def note(self, sentence: str) -> None:
        """Add a sentence of agentq's own to the log, after the output so far."""
        self._send_unsent(at_once=True)
        self._send(_split_chunks("note", sanitize_text(sentence) + "\n"))

    async def drain(self, timeout_ms: int) -> bool:
        """After the processes have ended, read to the end and close. False if a pipe was still held open.

        A process that left the run's tree may hold a pipe for ever: after the timeout, only what is in the pipe already
        is read.
        """
        try:
            await asyncio.wait_for(self._ended.wait(), timeout_ms / 1000)
        except TimeoutError:
            for fd in list(self._open):
                left = PIPE_BYTES_MAX
                while left > 0 and (count := self._read(fd)):
                    left -= count
        complete = not self._open
        await asyncio.wrap_future(self.close())
        self._note_file_error()
        return complete

    def close(self) -> Future[None]:
        """Stop reading and send what is left; the future is done when the file is complete."""
        for fd in list(self._open):
            self._close_pipe(fd)
        self._send_unsent(at_once=True, final=True)
        self._note_secrets()
        return self.file.close()

    # ---- reading

    def _listen(self) -> None:
        for fd in self._open:
            self._loop.add_reader(fd, self._read, fd)

    def _read(self, fd: int) -> int:
        """Read once; returns the number of bytes."""
        try:
            piece = os.read(fd, READ_BYTES)
        except BlockingIOError:
            return 0
        if not piece:
            self._close_pipe(fd)
            return 0
        stream = self._open[fd]
        self.last_byte_ms = monotonic_ms()
        if stream == "out":
            self.bytes_out += len(piece)
        else:
            self.bytes_err += len(piece)
        self._distribute(stream, self._redactors[stream].feed(piece) if self._redactors else piece)
        return len(piece)

    def _distribute(self, stream: LogStream, piece: bytes) -> None:
        """Pass a redacted piece to the file, the tap, the tail and the log."""
        if not piece:
            return
        self.file.write(piece)
        if self._tap is not None:
            self._tap(stream, piece)
        if self.file.backlog > BACKLOG_BYTES:
            self._pause()
        self._note_file_error()
        self._tail.append(stream, piece)
        self._unsent.append(stream, piece)
        self._schedule_send()

    def _close_pipe(self, fd: int) -> None:
        self._loop.remove_reader(fd)
        stream = self._open.pop(fd)
        os.close(fd)
        if self._redactors:
            self._distribute(stream, self._redactors[stream].flush())
        if not self._open:
            self._ended.set()

    def _pause(self) -> None:
        """Stop reading until the disk has caught up."""
        self._paused = True
        for fd in self._open:
            self._loop.remove_reader(fd)
        if not self.file.backlog:
            # The writer finished just before it could see `_paused`.
            self._resume()

    def _on_written(self) -> None:
        if self._paused:
            self._loop.call_soon_threadsafe(self._resume)

    def _resume(self) -> None:
        if self._paused and self.file.backlog <= BACKLOG_BYTES:
            self._paused = False
            self._listen()

    def _note_file_error(self) -> None:
        if self.file.error is not None and not self._noted_file_error:
            self._noted_file_error = True
            self.note(f"the file {self.file.path} is incomplete: {self.file.error.strerror}")

    def _note_secrets(self) -> None:
        count = sum(redactor.count for redactor in self._redactors.values())
        if count:
            self._redactors = {}
            many = "1 secret was" if count == 1 else f"{count} secrets were"
            self._send(_split_chunks("note", f"{many} replaced by [redacted] in this output\n"))

    # ---- sending

    def _schedule_send(self) -> None:
        """Send now, after a pause or when much has gathered; otherwise when the interval is over."""
        wait_ms = self._sent_ms + CHUNK_MS - self.last_byte_ms
        if wait_ms <= 0 or self._unsent.bytes > SAMPLE_BYTES // 2:
            self._send_unsent()
        elif self._timer is None:
            self._timer = self._loop.call_later(wait_ms / 1000, self._send_unsent)

    def _send_unsent(self, *, at_once: bool = False, final: bool = False) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now = monotonic_ms()
        self._allowed = min(self._allowed + (now - self._allowed_ms) * RATE_BYTES_PER_S // 1000, BURST_BYTES)
        self._allowed_ms = now
        if self._unsent.bytes > self._allowed and not at_once:
            self._timer = self._loop.call_later(CHUNK_MS / 1000, self._send_unsent)
            return
        self._sent_ms = now
        self._allowed -= self._unsent.bytes
        chunks = self._take_chunks(final)
        self._unsent.clear()
        if chunks:
            self._send(chunks)

    def _take_chunks(self, final: bool) -> list[LogChunk]:
        chunks: list[LogChunk] = []
        if self._unsent.left_out:
            self._unsent.skip_line(LINE_BYTES)
            chunks += _split_chunks(
                "note", f"{self._unsent.left_out} bytes left out here, see {self.file.path} on the worker\n"
            )
            for sanitizer in self._sanitizers.values():
                sanitizer.skip()
        for stream, piece in self._unsent:
            chunks += _split_chunks(stream, self._sanitizers[stream].text(piece))
        if final:
            for stream, sanitizer in self._sanitizers.items():
                chunks += _split_chunks(stream, sanitizer.text(b"", final=True))
        return chunks


def _split_chunks(stream: LogStream, text: str) -> list[LogChunk]:
    step = LOG_CHUNK_CHARACTERS
    return [LogChunk(stream, text[at : at + step]) for at in range(0, len(text), step)]


class OutputTail:
    """The newest bytes of several streams, in order. Beyond the bound the oldest are dropped, and counted."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes = 0
        self.left_out = 0
        self._pieces: deque[tuple[LogStream, bytearray]] = deque()

    def __iter__(self) -> Iterator[tuple[LogStream, bytearray]]:
        return iter(self._pieces)

    def append(self, stream: LogStream, piece: bytes) -> None:
        """Add the newest piece."""
        excess = len(piece) - self.bytes_max
        if excess > 0:
            self.left_out += excess
            piece = piece[excess:]
        if self._pieces and self._pieces[-1][0] == stream and len(self._pieces[-1][1]) < JOINED_BYTES_MAX:
            self._pieces[-1][1].extend(piece)
        else:
            self._pieces.append((stream, bytearray(piece)))
        self.bytes += len(piece)
        self._drop_oldest(self.bytes - self.bytes_max)

    def skip_line(self, bytes_max: int) -> None:
        """Drop the rest of a line that lost its beginning, unless it is longer than `bytes_max`."""
        oldest = self._pieces[0][1] if self._pieces else b""
        end = oldest.find(b"\n", 0, bytes_max) + 1
        self._drop_oldest(end)

    def clear(self) -> None:
        self._pieces.clear()
        self.bytes = self.left_out = 0

    def _drop_oldest(self, excess: int) -> None:
        while excess > 0:
            oldest = self._pieces[0][1]
            step = min(excess, len(oldest))
            if step == len(oldest):
                self._pieces.popleft()
            else:
                del oldest[:step]
            excess -= step
            self.bytes -= step
            self.left_out += step
