"""A server, three workers of which one has a bad line, and clients that write down every run that was acknowledged."""

from __future__ import annotations

import random
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from chaos.clock import Clock
from chaos.fleet import insist
from support.attempt_journal import Journal
from support.concurrency import running
from support.crew import Crew
from support.network_line import Line
from support.servers import Server, until

from agentq.coordinator.errors import Unreachable
from agentq.coordinator.model.ids import new_run_id
from agentq.coordinator.model.spec import RetryPolicy
from agentq.coordinator.runs.verbs import RunVerbs

TIMES = {"heartbeat_ms": 600, "lease_ms": 3000, "reap_grace_ms": 400, "forget_ms": 2000, "tick_ms": 600}
# What is lost again and again by the doing of a test is not a crash loop.
RETRY = RetryPolicy(crashes=100, delay_ms=100, delay_ms_max=500)
WORKERS = 3
SLOTS = 3
CLIENTS = 2
PAUSE_S = 0.25
HEAL_S = 60


class Scene:
    """Everything that faults are done to."""

    def __init__(
        self, server: Server, folder: Path, dice: random.Random, *, run_s: float = 0.2, clock: Clock | None = None
    ) -> None:
        self.server = server
        self.clock = clock
        self.crew = Crew(server, folder, **TIMES)
        self.journal = Journal(folder / "journal")
        self.line = Line(server)
        self.dice = dice
        self.run_s = run_s
        self.workers: list[subprocess.Popen[bytes]] = []
        self.frozen: set[str] = set()
        """Workers that were stopped for a while, which therefore could not stop what they ran."""
        self._acknowledged = folder / "acknowledged"
        self._acknowledged.touch()

    @contextmanager
    def playing(self) -> Iterator[None]:
        """Workers work and clients submit until the end of the block; then all is worked off, and the workers leave."""
        with self.line:
            try:
                self.hire(self.line.url)
                for _ in range(WORKERS - 1):
                    self.hire()
                with running(*[self._submit] * CLIENTS):
                    yield
                until(lambda: self.over(self.acknowledged()), "everything to end", HEAL_S)
            finally:
                self.line.mend()
                self.crew.close()

    def acknowledged(self) -> list[str]:
        return self._acknowledged.read_text().split()

    def hire(self, url: str = "") -> None:
        """One more worker, which works for the scene to its end, or its own."""
        worker = self.crew.begin(url, slots=SLOTS)
        self.workers.append(worker)
        until(lambda: self.name_of(worker), "a worker to register", 60)

    def dismiss(self, worker: subprocess.Popen[bytes]) -> None:
        """SIGKILL."""
        self.workers.remove(worker)
        worker.send_signal(signal.SIGKILL)
        worker.wait()

    def name_of(self, worker: subprocess.Popen[bytes]) -> str:
        """Its id, if it is registered."""
        assert worker.poll() is None, f"a worker ended by itself, with {worker.returncode}"
        try:
            return next((one.id for one in self.crew.records.workers() if f"-{worker.pid}-" in one.id), "")
        except Unreachable:
            return ""

    def over(self, runs: list[str]) -> bool:
        """Whether all these have ended."""
        try:
            return all(self.crew.records.get(run).finished_at_ms for run in runs)
        except Unreachable:
            return False

    def _submit(self, stop: threading.Event) -> None:
        """A client: what it was told to be in is in its file, whatever becomes of the server next."""
        queue = RunVerbs.open(self.crew.settings)
        with self._acknowledged.open("a") as acknowledged:
            while not stop.wait(PAUSE_S):
                spec = self.journal.spec(self.run_s, retry=RETRY, stop_grace_ms=2000)
                run = new_run_id()
                insist(partial(queue.submit, spec, run_id=run))
                acknowledged.write(f"{run}\n")
                acknowledged.flush()
        queue.store.connection.close()
