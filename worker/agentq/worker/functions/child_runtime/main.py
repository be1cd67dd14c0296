"""The program of a child: `python -m agentq.worker.functions.child_runtime.main`. Its tasks:

1. Set its limits, and see to it that it dies with its worker.
2. Take calls from the socket and begin them in their order, unless they were withdrawn; see `shared_memory`.
3. While nothing is under way, wait for more; while calls are awaited, hear what comes beside them.
4. Say when it has grown too large. Code is loaded once: only another child has newer code.
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
"""More would be memory that is mapped anew for each read."""
NOTIFY_EVERY = 100
"""Outcomes that are worth a bell of their own."""
_PR_SET_PDEATHSIG = 1
_RLIMIT_NAMES = {"memory_bytes": "DATA", "cpu_s": "CPU", "open_files": "NOFILE", "file_bytes": "FSIZE"}


class ChildProgram:
    """See above."""

    def __init__(
        self,
        end: socket.socket,
        board: SharedMemory,
        allowed: AllowedFunctions,
        *,
        async_calls: int,
        rss_bytes: int | None,
    ) -> None:
        self._socket = end
        self._allowed = allowed
        self._numbers = board.numbers
        self._async_calls = async_calls
        self._rss_bytes = rss_bytes
        self._frames = protocol.FrameDecoder(protocol.FRAME_HEADER)
        self._calls: deque[tuple[int, str, str, str, str]] = deque()
        self._known: dict[str, Function] = {}
        """Synchronous functions that have been called before, by path."""
        self._told: dict[tuple[str, str], str] = {}
        self._over = self._leaving = False
        self._full = False
        self._voice = ReplyWriter(end, board)
        self._interrupts = Interrupts(board)
        self._host = ChildHost(self._voice, self._interrupts, self._ask)
        self._performing = CallRunner(self._voice, self._interrupts, self._host)
        self._awaiting = AsyncCallRunner(self._performing, self._host, self._ended_beside)
        self._listens = False
        self._tracing = CallTracing.found()
        replace_streams(self._host)

    def work(self) -> None:
        """Until the worker is gone, or says so."""
        while not self._over and not (self._leaving and not self._calls and not self._awaiting.tasks):
            self._begin_all()
            # Before the bell: when an outcome is heard, it is known whether more may come here.
            self._look_at_size()
            self._voice.ring()
            if self._awaiting.tasks:
                self._turn()
            else:
                self._hear(block=True)

    def tell_the_rest(self) -> None:
        """Send the last traces."""
        self._tracing.flush()

    def _begin_all(self) -> None:
        calls, numbers, known, call = self._calls, self._numbers, self._known, self._performing.call
        tasks, left = self._awaiting.tasks, NOTIFY_EVERY
        while calls and (not tasks or len(tasks) < self._async_calls):
            number, run, fence, lane, spec = calls.popleft()
            numbers[CURRENT_CALL] = number
            if numbers[WITHDRAWN_FROM] <= number < numbers[WITHDRAWN_TO]:
                self._voice.put(protocol.encode_record(run, fence, protocol.REFUSED, str(number)))
                continue
            at = spec.find("[")
            function = known.get(spec[:at]) if spec[-1] == "]" else None
            if function is None:
                self._begin(number, run, fence, lane, spec)
            else:
                call(number, run, fence, function, spec[at:])
            left -= 1
            if not left:
                left = NOTIFY_EVERY
                self._look_at_size()
                self._voice.ring()

    def _begin(self, number: int, run: str, fence: str, lane: str, spec: str) -> None:
        """A call that is not one more of a synchronous function that we know, with positions alone."""
        timeout_ms = traceparent = None
        try:
            if spec.startswith("{"):
                whole = parse_spec(spec, lane)
                traceparent = whole.traceparent
                timeout_ms = whole.timeout_ms
                function = self._allowed.load(whole.function or "", lane)
                args, kwargs = function.arguments_of(whole.args, whole.kwargs, run)
                if timeout_ms or whole.silence_timeout_ms:
                    times = f"{timeout_ms or 0} {whole.silence_timeout_ms or 0} {whole.stop_grace_ms}"
                    self._voice.say(protocol.encode_record(run, fence, protocol.TIMED, times))
            else:
                spec, traced = split_traceparent(spec)
                traceparent = traced.get("traceparent")
                at = min(place for place in (spec.find("["), spec.find("{"), len(spec)) if place >= 0)
                function = self._allowed.load(spec[:at], lane)
                args, kwargs = function.arguments(spec[at:], run)
                if not function.is_async and not self._tracing.is_on and is_cacheable(function.path):
                    self._known[spec[:at]] = function
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is how the run ends
            self._performing.say(run, fence, call_outcomes.encode_not_begun(error))
            return
        function = self._tracing.around(function, run, lane, traceparent)
        if function.is_async:
            self._voice.put(protocol.encode_record(run, fence, protocol.ASYNC, function.path))
            self._awaiting.begin(number, run, fence, function, args, kwargs, timeout_ms)
        else:
            self._performing.call_with(number, run, fence, function, args, kwargs, timeout_ms)

    # ---- waiting

    def _turn(self) -> None:
        """Let what is awaited go on, until there is something to begin or nothing left to await."""
        loop = self._awaiting.loop
        if not self._listens:
            loop.add_reader(self._socket, self._hear_beside)
            self._listens = True
        loop.run_forever()

    def _hear_beside(self) -> None:
        self._hear(block=False)
        if self._over or (self._calls and len(self._awaiting.tasks) < self._async_calls):
            self._awaiting.loop.stop()

    def _ended_beside(self) -> None:
        """Something awaited has ended: leave the loop, to say so with all that has ended by then."""
        self._awaiting.loop.stop()

    def _hear(self, *, block: bool) -> None:
        try:
            piece = self._socket.recv(READ_BYTES, 0 if block else socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        if not piece:
            self._over = True
        for _, body in self._frames.fed(piece):
            self._obey(body.decode().split("\n"))

    def _obey(self, lines: list[str]) -> None:
        what = lines[0]
        if what == protocol.CALLS:
            self._calls.extend(zip(count(int(lines[1])), *(lines[at::4] for at in range(2, 6)), strict=False))
        elif what == protocol.STOP:
            self._awaiting.stop(int(lines[1]), int(lines[2]))
        elif what == protocol.ANSWER:
            self._told[lines[1], lines[2]] = lines[3]
        elif what == protocol.LEAVE:
            self._leaving = True

    def _ask(self, run: str, fence: str) -> str:
        """What the worker answers; whatever else it says meanwhile is kept for later."""
        self._voice.say(protocol.encode_record(run, fence, protocol.RECEIVE, ""))
        while (run, fence) not in self._told and not self._over:
            self._hear(block=True)
        return self._told.pop((run, fence), "null")

    # ---- its size

    def _look_at_size(self) -> None:
        if not self._full and (self._performing.grown or (self._rss_bytes and _read_rss_bytes() > self._rss_bytes)):
            self._full = True
            self._voice.say(protocol.encode_record("", "", protocol.FULL, ""))


def _read_rss_bytes() -> int:
    with suppress(OSError), open("/proc/self/statm", "rb", buffering=0) as file:
        return int(file.read().split()[1]) * resource.getpagesize()
    return 0


def _apply_limits(caps: dict[str, int]) -> None:
    """Take these limits upon us, and upon all that we start."""
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


def _die_with_parent(keeper: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != keeper:
        os._exit(1)


def _read_url(end: int) -> str:
    """The address of the server, which is in no environment; empty where these runs are not to know it."""
    if end < 0:
        return ""
    with os.fdopen(end, encoding="utf-8") as pipe:
        return pipe.read()


def run_child(told: dict[str, Any]) -> None:
    """Be a child of the worker that says this."""
    hide_environment()
    _die_with_parent(told["keeper"])
    faulthandler.enable()
    settings.worker_url = _read_url(told["url"])
    for end in (told["socket"], told["board"]):
        os.set_inheritable(end, False)
    board = SharedMemory(told["board"])
    os.close(told["board"])
    inside = ChildProgram(
        socket.socket(fileno=told["socket"]),
        board,
        AllowedFunctions(told["functions"]),
        async_calls=told["async_calls"],
        rss_bytes=told["rss_bytes"],
    )
    _apply_limits(told["caps"])
    with suppress(BrokenPipeError, ConnectionResetError):  # the worker is gone
        inside.work()
    inside.tell_the_rest()


if __name__ == "__main__":
    asyncio.set_event_loop(None)
    run_child(json.loads(sys.argv[1]))
