"""Executes a plan: workers here or elsewhere do its tasks, and this process watches until it has ended.

The first Ctrl-C lets nothing more begin and waits for what runs; the second one does not wait. Either way, and after a
crash of anything at any point, `agentq resume` goes on: all that is known of the plan is with the server.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event
from types import FrameType
from typing import Any

from agentq.cli.connect import embedded_server, home_folder, print_note
from agentq.cli.plans.local_worker import LocalWorker
from agentq.cli.plans.plan_host import PlanHost
from agentq.cli.plans.progress import PlanProgress, open_progress
from agentq.cli.plans.summary import PlanSummary
from agentq.cli.plans.watch import PlanWatch
from agentq.coordinator.clock import monotonic_ms
from agentq.coordinator.config.settings import LayeredSettings
from agentq.coordinator.errors import AgentqError, TryLater, Unreachable
from agentq.coordinator.plans.source import PlanHeader

POLL_MS = 250
INCOMPLETE_PLAN_MS = 2_000
"""How long a plan may be seen without its seal before it is taken for one whose submit was cut."""
HANDLED_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class PlanRunner:
    """Executes one plan until it has ended or is interrupted."""

    def __init__(self, host: PlanHost, plan: str, head: PlanHeader, settings: LayeredSettings) -> None:
        self._host = host
        self._plans = host.backend.plans
        self._labels = settings.worker.labels
        self._plan = plan
        self._head = head
        self._embedded = not settings.settings.url
        self._signals = 0
        self._told = 0
        self._away = False
        self._trouble = ""
        self._pause = Event()

    def carry_out(self, workers: int, *, json: bool) -> int:
        """Work on it and look on; the exit code."""
        self._complete()
        watch = PlanWatch(self._host.backend, self._plan)
        head, home = self._head, home_folder(self._host.settings)
        crew = LocalWorker(self._host, home, self._plan, head.queues, self._labels, alone=head.crewed)
        with self._heard():
            try:
                if workers and watch.record.ended is None:
                    workers = self._engage(crew, workers)
                with open_progress(self._host.backend, watch, self._head, quiet=json) as shown:
                    self._look_on(watch, crew, shown, workers)
            finally:
                crew.end()
        summary = PlanSummary(self._host.backend, watch, self._head, self._trouble, interrupted=bool(self._signals))
        watch.close()
        if watch.record.ended is not None:
            if self._head.max_parallel is not None:
                self._plans.remove_limit(self._plan)
            if not self._trouble:
                crew.tidy()
        return summary.print(json=json)

    def _complete(self) -> None:
        """Submit missing tasks of an interrupted submit; another process may do that, or add a task, meanwhile."""
        plans = self._plans
        until_ms = monotonic_ms() + INCOMPLETE_PLAN_MS
        while not (record := plans.get(self._plan)).sealed and monotonic_ms() < until_ms:
            self._pause.wait(POLL_MS / 1000)
        if not record.sealed:
            plans.complete(self._plan)
            print_note(f"the submit of {self._plan} was cut; it is complete now.")

    def _engage(self, crew: LocalWorker, workers: int) -> int:
        if not crew.take():
            print_note(f"another process on this machine works on {self._plan}; this one only watches.")
            return 0
        crew.start(workers)
        return workers

    def _look_on(self, watch: PlanWatch, crew: LocalWorker, shown: PlanProgress, workers: int) -> None:
        """Watch the plan until it or its local workers have ended."""
        while watch.record.ended is None:
            self._obey(crew, shown, workers)
            if self._is_over(crew, workers, shown):
                return
            try:
                shown.show(watch.again() if self._away else watch.look(POLL_MS))
                self._away = False
            except (Unreachable, TryLater) as error:
                self._outage(error, shown)

    def _is_over(self, crew: LocalWorker, workers: int, shown: PlanProgress) -> bool:
        """Whether there is nothing to look at any more, though the plan goes on."""
        if not workers:
            return self._signals > 0
        if crew.draining:
            return not crew.works
        self._trouble = crew.look(shown.say)
        return bool(self._trouble)

    def _obey(self, crew: LocalWorker, shown: PlanProgress, workers: int) -> None:
        """Do as the signals say that have come since."""
        while self._told < self._signals and workers:
            self._told += 1
            crew.drain()
            if self._told == 1:
                shown.say("nothing more begins; what runs is finished. Ctrl-C once more stops it now.")
            elif self._told == 2:
                shown.say("what runs is stopped now, and begins again when you resume.")

    def _outage(self, error: Exception, shown: PlanProgress) -> None:
        """The server is unreachable: restart the embedded one, or wait for it until interrupted."""
        if not self._away:
            shown.say(f"{error} It goes on when the server is back.")
        self._away = True
        self._pause.wait(POLL_MS / 1000)
        if self._embedded:
            with suppress(AgentqError):
                embedded_server(self._host.settings).start()

    @contextmanager
    def _heard(self) -> Iterator[None]:
        """Count the signals instead of dying of them."""

        def count(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - as it is called
            self._signals += 1

        before: dict[int, Any] = {number: signal.signal(number, count) for number in HANDLED_SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
