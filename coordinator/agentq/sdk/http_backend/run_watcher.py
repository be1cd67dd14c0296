"""Runs as a coordinator tells of them: looked at many at a time, and rung by one stream for all who wait."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from itertools import chain
from typing import Any

from agentq.coordinator.errors import AgentqError, NotFound
from agentq.coordinator.model.lifecycle import TERMINAL_STATES
from agentq.coordinator.runs.end_waiter import WakeFlag
from agentq.coordinator.runs.run_record import RunRecord
from agentq.sdk.http_backend.errors import problem_error
from agentq.sdk.http_backend.event_stream import GAP_EVENT, OPENING_EVENT, ResumableStream
from agentq.sdk.http_backend.http_client import HttpClient

RUNS_PER_REQUEST = 500


class HttpRunWatcher:
    """The runs of one coordinator, for those who wait."""

    def __init__(self, wire: HttpClient) -> None:
        self._wire = wire
        self._lock = threading.Lock()
        self._bells: dict[str, list[WakeFlag]] = {}
        self._reader: _EndedRunReader | None = None

    def get(self, run_id: str, *, given_to: str | None = None) -> RunRecord:
        found = self.read([run_id], given_to=given_to)[run_id]
        if isinstance(found, AgentqError):
            raise found
        return found

    def read(self, run_ids: Sequence[str], *, given_to: str | None = None) -> dict[str, RunRecord | AgentqError]:
        """Runs, whole; of one that cannot be read, why."""
        found = self._records(run_ids, ended=False, given_to=given_to)
        return {run_id: run for run_id, run in found.items() if run is not None}

    def looked_at(self, run_ids: Sequence[str], *, likely: bool) -> dict[str, RunRecord | AgentqError | None]:  # noqa: ARG002
        return self._records(run_ids, ended=True)

    def enter(self, run_id: str, bell: WakeFlag) -> None:
        with self._lock:
            self._bells.setdefault(run_id, []).append(bell)
            if self._reader is None or self._reader.fault is not None:
                self._reader = _EndedRunReader(self._wire, self._ring)
        try:
            self._reader.wait()
        except AgentqError:
            self.leave(run_id, bell)
            raise

    def leave(self, run_id: str, bell: WakeFlag) -> None:
        with self._lock:
            bells = self._bells.get(run_id, [])
            if bell in bells:
                bells.remove(bell)
            if not bells:
                self._bells.pop(run_id, None)

    def close(self) -> None:
        if self._reader is not None:
            self._reader.stop()
        self._wire.close()

    def _records(
        self, run_ids: Sequence[str], *, ended: bool, given_to: str | None = None
    ) -> dict[str, RunRecord | AgentqError | None]:
        found: dict[str, RunRecord | AgentqError | None] = {}
        left, more = list(run_ids), {} if given_to is None else {"given_to": given_to}
        while left:
            asked, later = left[:RUNS_PER_REQUEST], left[RUNS_PER_REQUEST:]
            told = self._wire.post("/records/runs", {"ids": asked, "ended": ended, **more})
            found |= {run_id: RunRecord.from_hash(run_id, fields) for run_id, fields in told["runs"].items()}
            found |= dict.fromkeys(told["live"])
            found |= {run_id: problem_error(problem) for run_id, problem in told["refused"].items()}
            found |= {
                run_id: NotFound(f"There is no run {run_id}; it may have been deleted after its retention.")
                for run_id in told["missing"]
            }
            left = told["left"] + later
        return found

    def _ring(self, run_id: str | None) -> None:
        with self._lock:
            bells = list(self._bells.values()) if run_id is None else [list(self._bells.get(run_id, ()))]
        for bell in list(chain.from_iterable(bells)):
            bell.set()


class _EndedRunReader(threading.Thread):
    """Listens for runs that end."""

    def __init__(self, wire: HttpClient, ring: Any) -> None:
        super().__init__(name="agentq-run-ends", daemon=True)
        self.fault: AgentqError | None = None
        self._listening = ResumableStream(wire, "/events", {"state": ",".join(TERMINAL_STATES)})
        self._ring = ring
        self._ready = threading.Event()
        self.start()

    def wait(self) -> None:
        """Until its place is known: what ends from then on rings."""
        self._ready.wait()
        if self.fault is not None:
            raise self.fault

    def run(self) -> None:
        try:
            for told in self._listening.items(patient=False):
                if told.name == OPENING_EVENT:
                    self._ready.set()
                else:
                    self._ring(None if told.name == GAP_EVENT else told.facts["run"])
        except AgentqError as fault:
            self.fault = fault
        except Exception as fault:  # noqa: BLE001 - whoever waits must hear of it
            self.fault = AgentqError(f"The coordinator's events cannot be read: {fault!r}")
        self._ready.set()
        # Whoever waits looks, and comes to know why nothing rings any more.
        self._ring(None)

    def stop(self) -> None:
        self._listening.interrupt()
        self.join()
