"""The program of a child: `python -m agentq.worker.functions.child_runtime.main`. Its tasks:

1. Set its limits, and die with its worker.
2. Take calls from the socket and begin them in order, unless they were withdrawn; see `shared_memory`.
3. Wait for more calls when idle; read the socket while asynchronous calls run.
4. Report when it has grown too large. Code is loaded once: only a new child has newer code.
"""

from __future__ import annotations

import asyncio
import ctypes
import faulthandler
import json
import os
import resource
import signal
import socket
import sys
from collections import deque
from contextlib import suppress
from itertools import count
from typing import Any

from agentq.coordinator.config import settings
from agentq.coordinator.model.spec import parse_spec, split_traceparent
from agentq.coordinator.security.environment_memory import hide_environment
from agentq.sdk.functions.codec import Function
from agentq.sdk.run_context import look_up_result
from agentq.worker.functions import protocol
from agentq.worker.functions.allowed_functions import AllowedFunctions, is_cacheable
from agentq.worker.functions.child_runtime import call_outcomes
from agentq.worker.functions.child_runtime.call_runner import AsyncCallRunner, CallRunner
from agentq.worker.functions.child_runtime.interrupts import Interrupts
from agentq.worker.functions.child_runtime.reply_writer import ReplyWriter
from agentq.worker.functions.child_runtime.run_host import ChildHost, replace_streams
from agentq.worker.functions.shared_memory import CURRENT_CALL, WITHDRAWN_FROM, WITHDRAWN_TO, SharedMemory
from agentq.worker.tracing import CallTracing

READ_BYTES = 64 << 10
"""A larger buffer would be mapped anew for each read."""
NOTIFY_EVERY = 100
"""How many outcomes are written before the worker is notified."""
_PR_SET_PDEATHSIG = 1
_RLIMIT_NAMES = {"memory_bytes": "DATA", "cpu_s": "CPU", "open_files": "NOFILE", "file_bytes": "FSIZE"}


class ChildProgram:
    """Takes calls from the worker and executes them."""

    def __init__(
        self,
        end: socket.socket,
        memory: SharedMemory,
        allowed: AllowedFunctions,
        *,
        async_calls: int,
        rss_bytes: int | None,
    ) -> None:
        self._socket = end
        self._allowed = allowed
        self._numbers = memory.numbers
        self._async_calls = async_calls
        self._rss_bytes = rss_bytes
        self._frames = protocol.FrameDecoder(protocol.FRAME_HEADER)
        self._calls: deque[tuple[int, str, str, str, str]] = deque()
        self._functions: dict[str, Function] = {}
        """Synchronous functions that were called before, by path."""
        self._resumptions: dict[tuple[str, str], str] = {}
        self._closed = self._leaving = False
        self._reported_full = False
        self._replies = ReplyWriter(end, memory)
        self._interrupts = Interrupts(memory)
        self._host = ChildHost(self._replies, self._interrupts, self._receive)
        self._sync_runner = CallRunner(self._replies, self._interrupts, self._host)
        self._async_runner = AsyncCallRunner(self._sync_runner, self._host, self._on_async_ended)
        self._reader_added = False
        self._tracing = CallTracing.from_environment()
        replace_streams(self._host)

    def work(self) -> None:
        """Execute calls until the worker is gone, or dismisses this child."""
        while not self._closed and not (self._leaving and not self._calls and not self._async_runner.tasks):
            self._start_calls()
            # Before the notification: when the worker reads an outcome, it knows whether this child takes more.
            self._check_size()
            self._replies.notify()
            if self._async_runner.tasks:
                self._run_loop()
            else:
                self._read(block=True)

    def flush(self) -> None:
        """Send the last traces."""
        self._tracing.flush()

    def _start_calls(self) -> None:
        calls, numbers, known, call = self._calls, self._numbers, self._functions, self._sync_runner.call
        tasks, left = self._async_runner.tasks, NOTIFY_EVERY
        while calls and (not tasks or len(tasks) < self._async_calls):
            number, run, fence, lane, spec = calls.popleft()
            numbers[CURRENT_CALL] = number
            if numbers[WITHDRAWN_FROM] <= number < numbers[WITHDRAWN_TO]:
                self._replies.put(protocol.encode_record(run, fence, protocol.REFUSED, str(number)))
                continue
            at = spec.find("[")
            function = known.get(spec[:at]) if spec[-1] == "]" else None
            if function is None:
                self._start_call(number, run, fence, lane, spec)
            else:
                call(number, run, fence, function, spec[at:])
            left -= 1
            if not left:
                left = NOTIFY_EVERY
                self._check_size()
                self._replies.notify()

    def _start_call(self, number: int, run: str, fence: str, lane: str, spec: str) -> None:
        """Start a call other than one of a known synchronous function with positional arguments alone."""
        timeout_ms = traceparent = None
        try:
            if spec.startswith("{"):
                run_spec = parse_spec(spec, lane)
                traceparent = run_spec.traceparent
                timeout_ms = run_spec.timeout_ms
                function = self._allowed.load(run_spec.function or "", lane)
                args, kwargs = function.arguments_of(run_spec.args, run_spec.kwargs, run, look_up_result)
                if timeout_ms or run_spec.silence_timeout_ms:
                    times = f"{timeout_ms or 0} {run_spec.silence_timeout_ms or 0} {run_spec.stop_grace_ms}"
                    self._replies.send(protocol.encode_record(run, fence, protocol.TIMED, times))
            else:
                spec, traced = split_traceparent(spec)
                traceparent = traced.get("traceparent")
                at = min(position for position in (spec.find("["), spec.find("{"), len(spec)) if position >= 0)
                function = self._allowed.load(spec[:at], lane)
                args, kwargs = function.arguments(spec[at:], run, look_up_result)
                if not function.is_async and not self._tracing.is_on and is_cacheable(function.path):
                    self._functions[spec[:at]] = function
        except BaseException as error:  # noqa: BLE001 - any error becomes the outcome
            self._sync_runner.send_failure(run, fence, call_outcomes.encode_not_begun(error))
            return
        function = self._tracing.wrap(function, run, lane, traceparent)
        if function.is_async:
            self._replies.put(protocol.encode_record(run, fence, protocol.ASYNC, function.path))
            self._async_runner.begin(number, run, fence, function, args, kwargs, timeout_ms)
        else:
            self._sync_runner.call_with(number, run, fence, function, args, kwargs, timeout_ms)

    # ---- waiting

    def _run_loop(self) -> None:
        """Run asynchronous calls until there is a call to start, or none are left."""
        loop = self._async_runner.loop
        if not self._reader_added:
            loop.add_reader(self._socket, self._read_in_loop)
            self._reader_added = True
        loop.run_forever()

    def _read_in_loop(self) -> None:
        self._read(block=False)
        if self._closed or (self._calls and len(self._async_runner.tasks) < self._async_calls):
            self._async_runner.loop.stop()

    def _on_async_ended(self) -> None:
        """An asynchronous call has ended: leave the loop, to send its outcome along with others."""
        self._async_runner.loop.stop()

    def _read(self, *, block: bool) -> None:
        try:
            piece = self._socket.recv(READ_BYTES, 0 if block else socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        if not piece:
            self._closed = True
        for _, body in self._frames.decode(piece):
            self._handle_frame(body.decode().split("\n"))

    def _handle_frame(self, lines: list[str]) -> None:
        what = lines[0]
        if what == protocol.CALLS:
            self._calls.extend(zip(count(int(lines[1])), *(lines[at::4] for at in range(2, 6)), strict=False))
        elif what == protocol.STOP:
            self._async_runner.stop(int(lines[1]), int(lines[2]))
        elif what == protocol.ANSWER:
            self._resumptions[lines[1], lines[2]] = lines[3]
        elif what == protocol.LEAVE:
            self._leaving = True

    def _receive(self, run: str, fence: str) -> str:
        """The worker's answer to `+receive`; other frames that arrive meanwhile are handled."""
        self._replies.send(protocol.encode_record(run, fence, protocol.RECEIVE, ""))
        while (run, fence) not in self._resumptions and not self._closed:
            self._read(block=True)
        return self._resumptions.pop((run, fence), "null")

    # ---- its size

    def _check_size(self) -> None:
        if not self._reported_full and (
            self._sync_runner.out_of_memory or (self._rss_bytes and _read_rss_bytes() > self._rss_bytes)
        ):
            self._reported_full = True
            self._replies.send(protocol.encode_record("", "", protocol.FULL, ""))


def _read_rss_bytes() -> int:
    with suppress(OSError), open("/proc/self/statm", "rb", buffering=0) as file:
        return int(file.read().split()[1]) * resource.getpagesize()
    return 0


def _apply_limits(caps: dict[str, int]) -> None:
    """Set these limits for this process and all that it starts."""
    for name, value in caps.items():
        if name in _RLIMIT_NAMES:
            number = getattr(resource, f"RLIMIT_{_RLIMIT_NAMES[name]}")
            _, most = resource.getrlimit(number)
            hard = value + (1 if name == "cpu_s" else 0)
            hard = hard if most == resource.RLIM_INFINITY else min(hard, most)
            resource.setrlimit(number, (min(value, hard), hard))
    if "nice" in caps:
        os.nice(caps["nice"])
    if "umask" in caps:
        os.umask(caps["umask"])


def _die_with_parent(parent: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def _read_url(end: int) -> str:
    """The server's address, which is in no environment; empty where these runs may not know it."""
    if end < 0:
        return ""
    with os.fdopen(end, encoding="utf-8") as pipe:
        return pipe.read()


def run_child(launch: dict[str, Any]) -> None:
    """Run the child that the worker described."""
    hide_environment()
    _die_with_parent(launch["parent_pid"])
    faulthandler.enable()
    settings.worker_url = _read_url(launch["url"])
    for end in (launch["socket"], launch["board"]):
        os.set_inheritable(end, False)
    memory = SharedMemory(launch["board"])
    os.close(launch["board"])
    program = ChildProgram(
        socket.socket(fileno=launch["socket"]),
        memory,
        AllowedFunctions(launch["functions"]),
        async_calls=launch["async_calls"],
        rss_bytes=launch["rss_bytes"],
    )
    _apply_limits(launch["caps"])
    with suppress(BrokenPipeError, ConnectionResetError):  # the worker is gone
        program.work()
    program.flush()


if __name__ == "__main__":
    asyncio.set_event_loop(None)
    run_child(json.loads(sys.argv[1]))
