"""JSON-RPC with a child process, one message per line; tolerates any output of the child. Its tasks:

1. Send requests and notifications, and answer the child's requests. Messages are handled in the order they arrive.
2. Read with bounded memory. A line that is no JSON is skipped. An oversized line is skipped if it is a notification,
   and ends the conversation if a request may be waiting for it.
3. Detect the child's end, even if a grandchild holds its pipes for ever.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from math import isfinite
from pathlib import Path
from typing import Any

LINE_BYTES = 16 << 20
LINE_HEAD_BYTES = 4 << 10
READ_BYTES = 256 << 10
STDERR_DRAIN_S = 1.0
"""How long to wait for stderr written before the child ended."""
BAD_LINES_MAX = 3
SHOWN_CHARACTERS = 120
METHOD_NOT_FOUND = -32601
_SURROGATE_ESCAPE = re.compile(rb"\\u[dD][89a-fA-F]")

Message = dict[str, Any]
OnNotification = Callable[[str, Message], None]
OnRequest = Callable[[str, Message], Message | None]
"""Returns the answer to a request of the child; None if it is not supported."""


class RpcError(Exception):
    """The child answered a request with an error."""

    def __init__(self, code: int, message: str, more: object = None) -> None:
        super().__init__(message)
        self.code = code
        self.more = more


class RpcClosed(Exception):
    """The conversation has ended; says why."""


class RpcProcess:
    """The child, in a process group of its own, and the conversation with it."""

    def __init__(
        self,
        popen: subprocess.Popen[bytes],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        on_notification: OnNotification,
        on_request: OnRequest,
    ) -> None:
        self._popen = popen
        self._writer = writer
        self._on_notification, self._on_request = on_notification, on_request
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._next_id = 0
        self._complaints = 0
        self._unusable: str | None = None
        self.exited: asyncio.Future[int] = self._loop.create_future()
        """Its exit code; negative for a signal."""
        threading.Thread(target=self._wait_for_exit, daemon=True).start()
        self._reading = asyncio.ensure_future(self._read(reader))

    @classmethod
    async def start(
        cls,
        argv: Sequence[str],
        env: Mapping[str, str],
        cwd: Path,
        on_notification: OnNotification,
        on_request: OnRequest,
    ) -> RpcProcess:
        """Start it; raises OSError on failure."""
        popen = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=dict(env), cwd=cwd, process_group=0
        )
        loop, reader = asyncio.get_running_loop(), asyncio.StreamReader(limit=READ_BYTES)
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), popen.stdout)
        transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, popen.stdin)
        return cls(popen, reader, asyncio.StreamWriter(transport, protocol, None, loop), on_notification, on_request)

    async def request(self, method: str, params: Message, timeout_s: float | None = None) -> Message:
        """Send a request and return its answer; raises RpcError, RpcClosed or TimeoutError."""
        self._next_id += 1
        number = self._next_id
        answer = self._waiting[number] = self._loop.create_future()
        try:
            await self._send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
            result = await asyncio.wait_for(answer, timeout_s)
        finally:
            self._waiting.pop(number, None)
        return result if isinstance(result, dict) else {}

    async def notify(self, method: str, params: Message) -> None:
        """Send a notification."""
        await self._send({"jsonrpc": "2.0", "method": method, "params": params})

    async def end(self, patience_s: float) -> int | None:
        """Let it end by itself after closing its stdin; then SIGTERM, then SIGKILL to its group, each in time."""
        self._writer.close()
        for number in (None, signal.SIGTERM, signal.SIGKILL):
            if number is not None:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._popen.pid, number)
            await asyncio.wait([self.exited], timeout=patience_s)
            if self.exited.done():
                break
        await asyncio.wait([self._reading], timeout=STDERR_DRAIN_S)
        self._reading.cancel()
        return self.exited.result() if self.exited.done() else None

    # ---- writing

    async def _send(self, message: Message) -> None:
        if self._reading.done():
            raise RpcClosed(self._describe_exit())
        try:
            self._writer.write(json.dumps(message).encode() + b"\n")
            await self._writer.drain()
        except OSError:
            # Its end of the pipe is closed; the reader says why, once it has read its last words.
            await asyncio.wait([self._reading], timeout=STDERR_DRAIN_S)
            raise RpcClosed(self._describe_exit()) from None

    # ---- reading

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            await self._read_lines(reader)
        finally:
            for answer in self._waiting.values():
                if not answer.done():
                    answer.set_exception(RpcClosed(self._describe_exit()))

    async def _read_lines(self, reader: asyncio.StreamReader) -> None:
        line, dropped = bytearray(), False
        while self._unusable is None and (piece := await self._read_piece(reader)):
            *whole, rest = piece.split(b"\n")
            for end in whole:
                if not dropped:
                    self._handle_line(bytes(line + end))
                line.clear()
                dropped = False
            if not dropped:
                line += rest
                if len(line) > LINE_BYTES:
                    dropped = True
                    self._too_long(bytes(line[:LINE_HEAD_BYTES]))
                    line.clear()
        if line:
            self._handle_line(bytes(line))
        # Its exit code is part of why it is gone, and comes a moment after the end of its output.
        await asyncio.wait([self.exited], timeout=STDERR_DRAIN_S)

    async def _read_piece(self, reader: asyncio.StreamReader) -> bytes:
        """The next of its output; empty when it has ended, even if another process holds its pipe."""
        reading = asyncio.ensure_future(reader.read(READ_BYTES))
        futures: list[asyncio.Future[Any]] = [reading, self.exited]
        await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
        if not reading.done():
            await asyncio.wait([reading], timeout=STDERR_DRAIN_S)
        if not reading.done():
            reading.cancel()
            return b""
        return reading.result()

    def _handle_line(self, line: bytes) -> None:
        if not line.strip():
            return
        message = parse_message(line)
        about = message.get("params")
        params = about if isinstance(about, dict) else {}
        match message:
            case {"method": str(method), "id": number}:
                self._answer(number, method, self._on_request(method, params))
            case {"method": str(method)}:
                self._on_notification(method, params)
            case {"id": int(number)}:
                self._on_answer(number, message)
            case _:
                self._complain(
                    f"a line of its output is no message: {line[:SHOWN_CHARACTERS].decode(errors='replace')!r}"
                )

    def _answer(self, number: object, method: str, result: Message | None) -> None:
        answer: Message = {"jsonrpc": "2.0", "id": number}
        if result is None:
            answer["error"] = {"code": METHOD_NOT_FOUND, "message": f"there is no {method} here"}
        else:
            answer["result"] = result
        if not self._writer.is_closing():
            self._writer.write(json.dumps(answer).encode() + b"\n")

    def _on_answer(self, number: int, message: Message) -> None:
        answer = self._waiting.get(number)
        if answer is None or answer.done():
            return
        match message.get("error"):
            case None:
                answer.set_result(message.get("result"))
            case {"code": int(code), "message": str(text), **rest}:
                answer.set_exception(RpcError(code, text, rest.get("data")))
            case other:
                answer.set_exception(RpcError(0, str(other)))

    def _too_long(self, head: bytes) -> None:
        about = f"a message has more than {LINE_BYTES >> 20} MiB"
        if b'"session/update"' in head:
            self._complain(f"{about}; it was passed over")
        else:
            self._unusable = about

    def _complain(self, sentence: str) -> None:
        if self._complaints < BAD_LINES_MAX:
            sys.stderr.write(f"agentq: {sentence}\n")
            sys.stderr.flush()
        self._complaints += 1

    # ---- its end

    def _wait_for_exit(self) -> None:
        code = self._popen.wait()
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._on_exit, code)

    def _on_exit(self, code: int) -> None:
        if not self.exited.done():
            self.exited.set_result(code)

    def _describe_exit(self) -> str:
        if self._unusable is not None:
            return self._unusable
        if not self.exited.done():
            return "it closed its output"
        code = self.exited.result()
        return f"it was killed by signal {-code}" if code < 0 else f"it exited with code {code}"


def parse_message(line: bytes) -> Message:
    """The message in a line; empty if it is no JSON object. It can be serialized again, which JSON alone does not
    promise: lone surrogates become U+FFFD, and non-numbers null.
    """
    try:
        message = json.loads(line, parse_float=_parse_float, parse_constant=lambda _: None)
        if _SURROGATE_ESCAPE.search(line):
            whole = json.dumps(message, ensure_ascii=False).encode("utf-16-le", "surrogatepass")
            message = json.loads(whole.decode("utf-16-le", "replace"))
    except (ValueError, RecursionError):
        return {}
    return message if isinstance(message, dict) else {}


def _parse_float(text: str) -> float | None:
    number = float(text)
    return number if isfinite(number) else None
