"""What a function can ask of its process, and where its prints go.

`sys.stdout` and `sys.stderr` are replaced: a line written during a run goes to the log of that run. Everything else
goes to the worker's stderr, as does what bypasses Python.
"""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Callable
from typing import Any

from pydantic_core import to_json

from agentq.coordinator.bounds import LOG_CHUNK_CHARACTERS
from agentq.coordinator.runs.wait import Resumption
from agentq.sdk.run_context import current_run
from agentq.worker.functions import protocol
from agentq.worker.functions.child_runtime.interrupts import Interrupts
from agentq.worker.functions.child_runtime.reply_writer import ReplyWriter


class ChildHost:
    """The `Host` of the runs in this child."""

    def __init__(self, replies: ReplyWriter, interrupts: Interrupts, ask: Callable[[str, str], str]) -> None:
        self._replies = replies
        self._interrupts = interrupts
        self._ask = ask
        self.run = self.fence = ""
        """The synchronous call that executes now."""
        self.fences: dict[str, str] = {}
        """The fences of the asynchronous runs."""
        self.stopped: set[str] = set()
        """Asynchronous runs that are to stop."""
        self.unfinished: dict[tuple[str, str], str] = {}
        """Lines without an end, by run and stream."""
        self.written = False
        """Whether there may be unsent text."""

    # ---- for the SDK

    def report(self, run_id: str, progress: dict[str, Any]) -> None:
        self._send(run_id, protocol.PROGRESS, to_json(progress).decode())

    def log(self, run_id: str, text: str) -> None:
        self.write(run_id, "out", text)

    def is_cancelled(self, run_id: str) -> bool:
        if run_id in self.stopped:
            return True
        return run_id == self.run and self._interrupts.reason(self._interrupts.executing) == protocol.UNWANTED_STOP

    def received(self, run_id: str) -> Resumption | None:
        fence = self.fence_of(run_id)
        if not fence or fence.startswith("1-"):
            return None
        with self._interrupts.shield():
            resumption = json.loads(self._ask(run_id, fence))
        return None if resumption is None else Resumption.model_validate(resumption)

    # ---- prints

    def write(self, run_id: str, stream: str, text: str) -> None:
        """Log complete lines; the rest waits for its end, unless it grows long."""
        key = (run_id, stream)
        text = self.unfinished.pop(key, "") + text
        whole, newline, rest = text.rpartition("\n")
        if len(rest) >= LOG_CHUNK_CHARACTERS:
            whole, newline, rest = whole + newline + rest, "", ""
        if rest:
            self.unfinished[key] = rest
            self.written = True
        if whole or newline:
            self._send(run_id, protocol.LOG, json.dumps([stream, whole + newline]))

    def flush(self, run_id: str) -> None:
        """Log the last line of a run, which has no end."""
        for stream in ("out", "err"):
            rest = self.unfinished.pop((run_id, stream), "")
            if rest:
                self._send(run_id, protocol.LOG, json.dumps([stream, rest]))
        self.written = bool(self.unfinished)

    def fence_of(self, run_id: str) -> str:
        return self.fence if run_id == self.run else self.fences.get(run_id, "")

    def _send(self, run_id: str, what: str, text: str) -> None:
        fence = self.fence_of(run_id)
        if fence:
            with self._interrupts.shield():
                self._replies.send(protocol.encode_record(run_id, fence, what, text))


class RunTextStream(io.TextIOBase):
    """Replaces `sys.stdout` or `sys.stderr`."""

    def __init__(self, host: ChildHost, stream: str, end: int) -> None:
        self._host = host
        self._stream = stream
        self._end = end
        self.buffer = _RunByteStream(self)

    encoding = "utf-8"
    errors = "replace"

    def write(self, text: str) -> int:
        run = current_run(None)
        if run is not None and self._host.fence_of(run.id):
            self._host.write(run.id, self._stream, text)
        elif text:
            os.write(self._end, text.encode("utf-8", "replace"))
        return len(text)

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._end


class _RunByteStream(io.RawIOBase):
    """The `buffer` of such a stream, for writing bytes."""

    def __init__(self, text: RunTextStream) -> None:
        self._text = text

    def write(self, piece: Any) -> int:
        self._text.write(bytes(piece).decode("utf-8", "replace"))
        return len(piece)

    def writable(self) -> bool:
        return True


def replace_streams(host: ChildHost) -> None:
    """Send what is printed from now on to the runs that print it."""
    sys.stdout, sys.stderr = RunTextStream(host, "out", 1), RunTextStream(host, "err", 2)
