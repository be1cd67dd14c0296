"""Real worker processes on a real server, with times short enough for a test."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from support.invariants import check, take_snapshot
from support.processes import send
from support.servers import Server, until

from agentq.coordinator.config.settings import Settings
from agentq.coordinator.model.spec import RunSpec
from agentq.coordinator.runs.end_waiter import RunEndWaiter
from agentq.coordinator.runs.queries import RunQueries
from agentq.coordinator.runs.verbs import RunVerbs
from agentq.coordinator.storage.store import NamespaceStore

TIMES = {"heartbeat_ms": 400, "lease_ms": 2000, "reap_grace_ms": 400, "forget_ms": 1500, "tick_ms": 500}
"""A lease that runs out while a test waits; also that of a live worker, on a machine that is busy enough."""
LASTING = {**TIMES, "lease_ms": 120_000, "forget_ms": 20_000}
"""A lease that outlasts every test; a test that needs its end says so: see `Crew.lose`."""


class Crew:
    """A server, and workers that can be killed."""

    def __init__(self, server: Server, folder: Path, **settings: object) -> None:
        self.server = server
        self.folder = folder
        self.settings = Settings.model_validate({"url": server.url, **LASTING, **settings})
        self.queue = RunVerbs.open(self.settings)
        self.records = RunQueries(self.queue.store)
        self.outcomes = RunEndWaiter(self.queue.store)
        self.effects_file = folder / "effects"
        self.effects_file.touch()
        self.workers: list[subprocess.Popen[bytes]] = []
        self.within: list[str] = []
        """Words before a worker's own, that start it somewhere else: in other namespaces."""

    def worker(
        self, url: str | None = None, environment: Mapping[str, str] | None = None, **options: object
    ) -> subprocess.Popen[bytes]:
        """A new worker process; it is there once it is registered."""
        before = self.registered()
        worker = self.begin(url, environment, **options)
        until(lambda: self.registered() - before, "the worker to register", 60)
        return worker

    def worker_through(
        self, coordinator: str, environment: Mapping[str, str] | None = None, **options: object
    ) -> subprocess.Popen[bytes]:
        """A new worker that reaches a coordinator, and knows of nothing else; it is there once it is registered."""
        before = self.registered()
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
        worker = subprocess.Popen(
            argv, env={"AGENTQ_WORKER_FUNCTIONS": "support.functions", **variables}, stdin=subprocess.DEVNULL
        )
        self.workers.append(worker)
        return worker

    def registered(self) -> set[str]:
        """The ids of all workers."""
        return {record.id for record in self.records.workers()}

    def lose(self, *workers: subprocess.Popen[bytes]) -> None:
        """End the leases of workers that say nothing any more, and wait until a reaper has declared them lost.

        Those that a worker which started on this host has found dead are lost already.
        """
        end_leases(self.queue.store, self.registered, *filter(None, map(self.name_of, workers)))

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

    def wait(self, runs: list[str], timeout_ms: int = 60_000) -> None:
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


def end_leases(store: NamespaceStore, registered: Callable[[], set[str]], *names: str) -> None:
    """Let the leases of these workers end now, and wait until a reaper has declared them lost.

    A reaper judges once it has watched the server for a whole lease; that it has is written down too, each time it
    begins to watch anew because the machine was too busy for its rounds.
    """

    def lost() -> bool:
        for partition in store.partitions():
            workers, watch = store.key(partition, "workers"), store.key(partition, "reaper_watch")
            for name in names:
                store.connection.command("DEL", store.key(partition, "worker_lease", name))
                store.connection.command("ZADD", workers, "XX", 0, name)
            if store.connection.command("EXISTS", watch):
                store.connection.command("HSET", watch, "since_ms", 0)
        return not registered() & set(names)

    until(lost, f"{', '.join(names)} to be lost", 60)


def _runs(pid: int, effects: Path) -> bool:
    try:
        return str(effects).encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
