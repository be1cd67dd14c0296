"""Watches the children in a thread: what they send, which calls they execute, and whether they live.

Every few milliseconds it checks busy children for their current call. A call that takes long is reported as started,
and calls waiting behind it go to other children or back to their lane. When all current calls are known to be long, and
when there are none, the thread sleeps until it is woken. It also starts all children, because a child dies with the
thread that started it.
"""

from __future__ import annotations

import os
import random
import select
import threading
import traceback
from collections.abc import Callable
from typing import Protocol, TypeVar

from agentq.coordinator.clock import monotonic_ms
from agentq.coordinator.errors import TryLater, Unreachable
from agentq.coordinator.runs.verbs import Claim
from agentq.worker.functions.call_stops import CallStops
from agentq.worker.functions.child_pool import ChildPool
from agentq.worker.functions.child_process import CallKey, ChildProcess
from agentq.worker.functions.exchange import FunctionExchange
from agentq.worker.functions.reply_handler import ReplyHandler
from agentq.worker.functions.shared_memory import CURRENT_CALL, RING_HEAD, RING_TAIL, SharedMemoryCorrupt
from agentq.worker.reporting.report_sender import AttemptReport

T = TypeVar("T")

WATCH_TICK_MS = 5
LONG_CALL_MS = 20
"""A call of more than this is reported as started,"""
BUSY_CALL_MS = 50
"""and calls waiting behind one of more than this are withdrawn. Calls without a place for so long go back to their
lane.
"""
RETRY_MS = 1_000


class WatchedEngine(Protocol):
    """What the thread watches and calls; `FunctionEngine` is one."""

    children: ChildPool
    exchange: FunctionExchange
    replies: ReplyHandler
    stops: CallStops

    def call_room(self) -> int: ...

    def request_calls(self) -> None: ...

    def find_claim(self, key: CallKey) -> Claim | None: ...

    def send_report(self, report: AttemptReport) -> None: ...

    def on_withdrawn(self, child: ChildProcess) -> None: ...

    def on_child_ended(self, child: ChildProcess) -> None: ...

    def on_watcher_failed(self, error: Exception) -> None: ...

    def maintain_children(self, now: int) -> bool: ...

    def release_unplaced(self) -> None: ...

    def check_idle(self) -> None: ...


class ChildWatcher:
    """Polls the children and calls the engine."""

    def __init__(self, engine: WatchedEngine, lock: threading.RLock) -> None:
        self._engine = engine
        self._lock = lock
        self._wake_reader, self._wake_writer = os.pipe()
        os.set_blocking(self._wake_reader, False)
        os.set_blocking(self._wake_writer, False)
        self._poll = select.poll()
        self._poll.register(self._wake_reader, select.POLLIN)
        self._polled: dict[int, tuple[ChildProcess, int]] = {}
        """By descriptor: its child, and the events polled for."""
        self._waiting_since_ms: int | None = None
        """Since when calls have waited for a place."""
        self._asleep = False
        self.ignores_children = False
        """Whether children are not read, because too many outcomes wait for the server."""
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="agentq-functions", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        """Wake the thread, unless it is about to check anyway."""
        if self._asleep and threading.current_thread() is not self._thread:
            try:
                os.write(self._wake_writer, b"!")
            except BlockingIOError:
                return  # the pipe is full of wake-ups

    def withdraw(self, child: ChildProcess) -> None:
        """Withdraw, in a moment, what a child has not begun."""
        if not child.withdrawing and child.has_waiting():
            child.withdraw()
            self.wake()

    def close(self) -> None:
        """End all children, then the thread."""
        self._closed.set()
        self.wake()
        self._thread.join()
        os.close(self._wake_reader)
        os.close(self._wake_writer)

    def ask_until_answered(self, ask: Callable[[], T]) -> T | None:
        """Ask the server until it answers; None once this is closed."""
        while not self._closed.is_set():
            try:
                return ask()
            except (Unreachable, TryLater):
                self._closed.wait(random.uniform(RETRY_MS / 10, RETRY_MS) / 1000)
        return None

    def _run(self) -> None:
        try:
            self._watch()
        except Exception as error:  # noqa: BLE001 - the worker cannot run without this thread
            traceback.print_exc()
            self._engine.on_watcher_failed(error)

    def _watch(self) -> None:
        children = self._engine.children.all
        while not self._closed.is_set() or children:
            with self._lock:
                # A thread that changes something from here on sees `_asleep` and wakes this one.
                self._asleep = True
                timeout_ms = self._tick(monotonic_ms())
                self._register()
            events = self._poll.poll(timeout_ms)
            self._asleep = False
            for end, event in events:
                if end == self._wake_reader:
                    os.read(self._wake_reader, 4096)
                    continue
                child, _ = self._polled.get(end, (None, 0))
                if child is not None:
                    with self._lock:
                        self._on_event(child, end, event)

    def _on_event(self, child: ChildProcess, end: int, event: int) -> None:
        if end == child.pidfd:
            self._read_child(child)
            self._on_child_ended(child)
            return
        if event & select.POLLOUT:
            child.write_unsent()
        if event & ~select.POLLOUT and not self._read_child(child):
            # The child is ending, or has closed its connection.
            if child.calls or child.pidfd < 0:
                child.process.kill()
                self._on_child_ended(child)
            else:
                self._poll.unregister(end)
                child.hung_up = True

    def _read_child(self, child: ChildProcess) -> bool:
        """Read what the child has sent; returns whether its connection is open."""
        try:
            lines, open_ = child.read()
        except SharedMemoryCorrupt:
            return False
        if lines:
            self._engine.replies.handle(child, lines)
        return open_

    def _on_child_ended(self, child: ChildProcess) -> None:
        for end in (child.socket.fileno(), child.pidfd):
            if self._polled.pop(end, None) is not None and not (child.hung_up and end != child.pidfd):
                self._poll.unregister(end)
        child.process.wait()
        lines = child.read_rest()
        if lines:
            self._engine.replies.handle(child, lines)
        self._engine.on_child_ended(child)

    def _register(self) -> None:
        """Register the descriptors and events to poll for."""
        self.ignores_children = self._engine.exchange.is_full
        # Check again: room made before `ignores_children` was visible sends no wake-up.
        self.ignores_children = full = self.ignores_children and self._engine.exchange.is_full
        for child in self._engine.children.all:
            wanted = child.poll_events & (~select.POLLIN if full else ~0)
            for end, events in ((child.socket.fileno(), wanted), (child.pidfd, select.POLLIN)):
                if (
                    end >= 0
                    and not (child.hung_up and end != child.pidfd)
                    and self._polled.get(end, (None, -1))[1] != events
                ):
                    self._poll.register(end, events)
                    self._polled[end] = (child, events)

    # ---- every few milliseconds

    def _tick(self, now: int) -> int | None:
        """Do everything that is due; returns how long nothing will be due without an event."""
        engine = self._engine
        for child in list(engine.children.all):
            self._check_child(child, now)
        engine.stops.run_due(now)
        engine.children.share_slots(now)
        waits = engine.maintain_children(now)
        times = [self._next_check_ms(child, now) for child in engine.children.all]
        times.append(engine.children.slot_sharing.due_ms(now))
        if waits:
            if self._waiting_since_ms is None:
                self._waiting_since_ms = now
            elif now - self._waiting_since_ms >= BUSY_CALL_MS and not engine.children.is_starting:
                engine.release_unplaced()
            times.append(WATCH_TICK_MS)
        else:
            self._waiting_since_ms = None
        if engine.children.free_idle_slots():
            times.append(WATCH_TICK_MS)
        due_ms = engine.stops.due_ms()
        if due_ms is not None:
            times.append(max(1, due_ms - now))
        if self._closed.is_set():
            for child in engine.children.all:
                self._dismiss(child, now)
        self._request_calls()
        engine.check_idle()
        return min((time for time in times if time is not None), default=None)

    def _check_child(self, child: ChildProcess, now: int) -> None:
        if child.is_leaving and now >= child.leave_ms:
            child.kill()
        if child.withdrawing and now >= child.withdrawn_at_ms:
            self._engine.on_withdrawn(child)
        if child.idle:
            return
        numbers = child.memory.numbers
        if numbers[RING_HEAD] != numbers[RING_TAIL] and not self._engine.exchange.is_full:
            self._read_child(child)
        current = numbers[CURRENT_CALL]
        if current != child.current:
            child.current, child.current_since_ms = current, now
        if current and now - child.current_since_ms >= BUSY_CALL_MS:
            self.withdraw(child)
        if now - child.checked_ms >= LONG_CALL_MS:
            self._report_started(child, now)

    def _next_check_ms(self, child: ChildProcess, now: int) -> int | None:
        """When the child has to be checked without an event; None while all its calls are known to be long."""
        if child.is_leaving:
            return max(1, child.leave_ms - now)
        if child.withdrawing:
            return 1
        numbers = child.memory.numbers
        if child.idle or (len(child.started) == len(child.calls) and numbers[RING_HEAD] == numbers[RING_TAIL]):
            return None
        return WATCH_TICK_MS if numbers[CURRENT_CALL] else LONG_CALL_MS

    def _report_started(self, child: ChildProcess, now: int) -> None:
        child.checked_ms = now
        begun = set(child.begun())
        for key in (begun & child.begun_before) - child.started:
            claim = self._engine.find_claim(key)
            if claim is not None:
                self._engine.send_report(AttemptReport("start", claim))
            child.started.add(key)
        child.begun_before = begun

    def _dismiss(self, child: ChildProcess, now: int) -> None:
        if child.idle and not child.is_leaving:
            child.leave(now)
        elif not child.idle:
            child.kill()

    def _request_calls(self) -> None:
        if self._engine.call_room() > 0:
            self._engine.request_calls()
