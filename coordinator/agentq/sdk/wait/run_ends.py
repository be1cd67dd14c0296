"""Waits for runs to end, of any number of threads and event loops, with one reader of the events.

A wait holds no thread or connection of its own. The backend's readers set a flag when a run ends; one thread then
reads all flagged runs, and completes their waits. The order is that of `end_waiter`: enter the wait first, then look.
"""

from __future__ import annotations

import atexit
import os
import random
import threading
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from agentq.coordinator.clock import monotonic_ms
from agentq.coordinator.errors import AgentqError, TryLater, Unreachable, WaitTimedOut
from agentq.coordinator.model.lifecycle import TERMINAL_STATES
from agentq.coordinator.runs.end_waiter import OUTAGE_DELAY_MS_MAX
from agentq.coordinator.runs.run_record import RunRecord

if TYPE_CHECKING:
    from agentq.sdk.backend.runs import RunWatcher

RUNS_READ_MAX = 200
"""Runs that are looked at together."""

EndCallback = Callable[[RunRecord | AgentqError], None]
"""Gets the run once it has ended, or what keeps us from knowing; called from another thread, and quick."""


class RunWaiters:
    """The waits of one client in one process."""

    def __init__(self, runs: RunWatcher) -> None:
        self._runs = runs
        self._lock = threading.Lock()
        self._callbacks: dict[str, list[EndCallback]] = {}
        self._bells: dict[str, _RunNotifier] = {}
        self._rung: SimpleQueue[str | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def now(self, run_id: str) -> RunRecord | None:
        """The run, if it has ended."""
        run = self._runs.get(run_id)
        return run if run.state in TERMINAL_STATES else None

    def wait(self, run_id: str, timeout_ms: int | None = None) -> RunRecord | None:
        """The run, once it has ended; None when the time is over before that."""
        ended = self.now(run_id)
        if ended is not None:
            return ended
        told: SimpleQueue[RunRecord | AgentqError] = SimpleQueue()
        self.on_end(run_id, told.put)
        try:
            answer = told.get(timeout=None if timeout_ms is None else timeout_ms / 1000)
        except Empty:
            return None
        finally:
            self.leave(run_id, told.put)
        if isinstance(answer, AgentqError):
            raise answer
        return answer

    def wait_or_fail(self, run_id: str, timeout_ms: int | None = None) -> RunRecord:
        """The run, once it has ended; WaitTimedOut, which tells its state, when the time is over before that."""
        ended = self.wait(run_id, timeout_ms)
        if ended is not None:
            return ended
        try:
            run = self._runs.get(run_id)
            state = f"{run.state}{': ' if run.reason else ''}{run.reason}"
        except (Unreachable, TryLater):
            state = "unknown, its server out of reach"
        raise WaitTimedOut(f"The run {run_id} has not ended in time; it is {state}.")

    def on_end(self, run_id: str, told: EndCallback) -> None:
        """Tell when the run has ended, or at once if it has."""
        with self._lock:
            self._callbacks.setdefault(run_id, []).append(told)
            if self._thread is None:
                # A thread of ours that goes on while the interpreter ends would be torn apart, and say so.
                atexit.register(self._close_here, os.getpid())
                self._thread = threading.Thread(target=self._look, name="agentq-endings", daemon=True)
                self._thread.start()
        self._rung.put(run_id)

    def leave(self, run_id: str, told: EndCallback) -> None:
        """Do not tell any more."""
        with self._lock:
            waiting = self._callbacks.get(run_id, [])
            if told in waiting:
                waiting.remove(told)
        self._rung.put(run_id)

    def close(self) -> None:
        """End the threads; pending waits get no result."""
        if self._thread is not None:
            atexit.unregister(self._close_here)
            self._rung.put(None)
            self._thread.join()
        self._runs.close()

    def _close_here(self, pid: int) -> None:
        """Close, but not in the child of a fork, which has none of the threads."""
        if pid == os.getpid():
            self.close()

    def _look(self) -> None:
        """Look at every run that rings; at those that could not be looked at, again after a while."""
        late: set[str] = set()
        again_ms = 0
        while True:
            try:
                pause_s = max(0, again_ms - monotonic_ms()) / 1000 if late else None
                rung = self._taken(pause_s)
            except Empty:
                for run_id in late:
                    self._rung.put(run_id)
                late.clear()
                continue
            if rung is None:
                return
            try:
                self._look_at(rung)
            except (Unreachable, TryLater):
                if not late:
                    again_ms = monotonic_ms() + round(random.uniform(OUTAGE_DELAY_MS_MAX / 10, OUTAGE_DELAY_MS_MAX))
                late.update(rung)
            except AgentqError as fault:
                self._report_fault(rung, fault)
            except Exception as fault:  # noqa: BLE001 - passed to its waits; the others continue
                self._report_fault(rung, AgentqError(f"The runs cannot be looked at: {fault!r}"))

    def _taken(self, pause_s: float | None) -> list[str] | None:
        """Wait for flagged runs; None once closed."""
        rung: dict[str, None] = {}
        run_id = self._rung.get(timeout=pause_s)
        while run_id is not None:
            rung[run_id] = None
            if len(rung) >= RUNS_READ_MAX or self._rung.empty():
                return list(rung)
            run_id = self._rung.get()
        return None

    def _look_at(self, rung: Sequence[str]) -> None:
        fresh, likely = [], []
        for run_id in rung:
            with self._lock:
                wanted = bool(self._callbacks.get(run_id))
                if not wanted:
                    self._forget(run_id)
            if not wanted:
                continue
            if run_id in self._bells:
                likely.append(run_id)
                continue
            bell = _RunNotifier(run_id, self._rung)
            try:
                self._runs.enter(run_id, bell)
            except (Unreachable, TryLater):
                raise
            except AgentqError as fault:
                self._report(run_id, fault)
                continue
            self._bells[run_id] = bell
            fresh.append(run_id)
        for runs, are_likely in ((fresh, False), (likely, True)):
            found = self._runs.looked_at(runs, likely=are_likely) if runs else {}
            for run_id, ended in found.items():
                if ended is not None:
                    self._report(run_id, ended)

    def _report_fault(self, run_ids: Sequence[str], fault: AgentqError) -> None:
        for run_id in run_ids:
            self._report(run_id, fault)

    def _report(self, run_id: str, ended: RunRecord | AgentqError) -> None:
        with self._lock:
            waiting = self._callbacks.get(run_id, [])
            self._forget(run_id)
        for told in waiting:
            told(ended)

    def _forget(self, run_id: str) -> None:
        self._callbacks.pop(run_id, None)
        bell = self._bells.pop(run_id, None)
        if bell is not None:
            self._runs.leave(run_id, bell)


class _RunNotifier:
    """What a reader rings for one run."""

    def __init__(self, run_id: str, rung: SimpleQueue[str | None]) -> None:
        self._run_id, self._rung = run_id, rung

    def set(self) -> None:
        self._rung.put(self._run_id)
