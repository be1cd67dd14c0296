"""What a function can ask of the process that it is called in, and where what it prints goes.

`sys.stdout` and `sys.stderr` are replaced: a line that is written while a run is current goes to the log of that run,
anything else to the worker's stderr, as does whatever does not go through Python.
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
    """The child, as `Host` of the runs in it."""

    def __init__(self, replies: ReplyWriter, interrupts: Interrupts, ask: Callable[[str, str], str]) -> None:
        self._replies = replies
        self._interrupts = interrupts
        self._ask = ask
        self.run = self.fence = ""
        """The synchronous call that is executed now."""
        self.fences: dict[str, str] = {}
        """The fences of the asynchronous ones, by run."""
        self.stopped: set[str] = set()
        """Asynchronous runs that are to stop."""
        self.unfinished: dict[tuple[str, str], str] = {}
        """Lines that have not ended, by run and stream."""
        self.written = False
        """Whether anything was written since a run began that may not be out."""

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

    # ---- what it prints

    def write(self, run_id: str, stream: str, text: str) -> None:
        """Log the lines that are whole; the rest waits for its end, unless it grows long."""
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
        """Its last line has no end."""
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
    """A stand-in for `sys.stdout` or `sys.stderr`."""

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
    """For those who write bytes."""

    def __init__(self, text: RunTextStream) -> None:
        self._text = text

    def write(self, piece: Any) -> int:
        self._text.write(bytes(piece).decode("utf-8", "replace"))
        return len(piece)

    def writable(self) -> bool:
        return True


def replace_streams(host: ChildHost) -> None:
    """Have what is printed from now on go to the runs that print it."""
    sys.stdout, sys.stderr = RunTextStream(host, "out", 1), RunTextStream(host, "err", 2)
