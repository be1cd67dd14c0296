"""Real worker processes on a real server, with times short enough for a test."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from invariants import check, take_snapshot
from living import send
from servers import Server, until

from agentq.coordinator.outcomes import Outcomes
from agentq.coordinator.queue import Queue
from agentq.coordinator.records import Records
from agentq.coordinator.run import RunSpec
from agentq.coordinator.settings import Settings

TIMES = {"heartbeat_ms": 400, "lease_ms": 2000, "reap_grace_ms": 400, "forget_ms": 1500, "tick_ms": 500}


class Crew:
    """A server, and workers that can be killed."""

    def __init__(self, server: Server, folder: Path, **settings: object) -> None:
        self.server = server
        self.folder = folder
        self.settings = Settings.model_validate({"url": server.url, **TIMES, **settings})
        self.queue = Queue.open(self.settings)
        self.records = Records(self.queue.store)
        self.outcomes = Outcomes(self.queue.store)
        self.effects_file = folder / "effects"
        self.effects_file.touch()
        self.workers: list[subprocess.Popen[bytes]] = []
        self.within: list[str] = []
        """Words before a worker's own, that start it somewhere else: in other namespaces."""

    def worker(
        self, url: str | None = None, environment: Mapping[str, str] | None = None, **options: object
    ) -> subprocess.Popen[bytes]:
        """A new worker process; it is there once it is registered."""
        before = len(self.records.workers())
        worker = self.begin(url, environment, **options)
        until(lambda: len(self.records.workers()) > before, "the worker to register", 60)
        return worker

    def worker_through(
        self, coordinator: str, environment: Mapping[str, str] | None = None, **options: object
    ) -> subprocess.Popen[bytes]:
        """A new worker that reaches a coordinator, and knows of nothing else; it is there once it is registered."""
        before = {record.id for record in self.records.workers()}
        worker = self.begin_through(coordinator, environment, **options)
        until(lambda: self.name_of(worker) not in ("", *before), "the worker to register", 60)
        return worker

    def begin_through(
        self, coordinator: str, environment: Mapping[str, str] | None = None, **options: object
    ) -> subprocess.Popen[bytes]:
        """`agentq worker --connect`, with these options."""
        variables = {name: value for name, value in os.environ.items() if not name.startswith("AGENTQ_")}
        variables |= {"AGENTQ_HOME": str(self.folder / "home"), **(environment or {})}
        return self._start({"connect": coordinator, **options}, variables)

    def begin(
        self, url: str | None = None, environment: Mapping[str, str] | None = None, **options: object
    ) -> subprocess.Popen[bytes]:
        """`agentq worker`, with these options."""
        settings = self.settings.model_copy(update={"url": url or self.server.url, "home": str(self.folder / "home")})
        return self._start(options, {**os.environ, **settings.to_environment(), **(environment or {})})

    def _start(self, options: Mapping[str, object], variables: Mapping[str, str]) -> subprocess.Popen[bytes]:
        argv = [*self.within, sys.executable, "-m", "agentq.cli.main", "worker"]
        for name, value in options.items():
            for each in value if isinstance(value, list) else [value]:
                argv += [f"--{name.replace('_', '-')}", *([] if each is True else [str(each)])]
        worker = subprocess.Popen(argv, env=dict(variables), stdin=subprocess.DEVNULL)
        self.workers.append(worker)
        return worker

    def name_of(self, worker: subprocess.Popen[bytes]) -> str:
        """Its id, if it is registered."""
        return next((record.id for record in self.records.workers() if f"-{worker.pid}-" in record.id), "")

    def submit(self, script: str = ":", **fields: Any) -> str:
        """A shell script that writes down each time it begins, and each time it comes to its end."""
        mark = f'echo "%s $AGENTQ_RUN_ID $AGENTQ_ATTEMPT $$" >> {self.effects_file}'
        argv = ["sh", "-c", f"{mark % 'begin'}; {script}; {mark % 'end'}"]
        return self.queue.submit(
            RunSpec.checked(**{"kind": "command", "argv": argv, "cwd": str(self.folder), **fields})
        ).id

    def effects(self, what: str) -> Counter[str]:
        """How often each run began, or came to its end."""
        lines = [line.split() for line in self.effects_file.read_text().splitlines()]
        return Counter(words[1] for words in lines if words[0] == what)

    def processes(self) -> list[int]:
        """The processes of runs that are alive, by what they have noted down."""
        pids = {int(line.split()[3]) for line in self.effects_file.read_text().splitlines()}
        return [pid for pid in pids if _runs(pid, self.effects_file)]

    def state(self, run: str) -> str:
        return self.records.get(run).state.value

    def wait(self, runs: list[str], timeout_ms: int = 30_000) -> None:
        self.outcomes.wait_all(runs, timeout_ms)

    def close(self) -> None:
        """End every worker, and see that the namespace is in order."""
        for worker in self.workers:
            if worker.poll() is None:
                worker.send_signal(signal.SIGCONT)
                worker.send_signal(signal.SIGTERM)
        for worker in self.workers:
            try:
                worker.wait(timeout=20)
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()
        self.outcomes.close()
        send(signal.SIGKILL, self.processes())

    def check(self) -> None:
        """Every invariant of the namespace."""
        for base in self.queue.store.keyspace.bases():
            check(take_snapshot(self.queue.store.connection, base))


def _runs(pid: int, effects: Path) -> bool:
    try:
        return str(effects).encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
