"""Real processes around RQ: workers of ours, RQ's own command line, with times short enough for a test."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from rq.job import Job, JobStatus
from rq_jobs.adoption import Adoption
from support.generated_docs import ROOT
from support.servers import Server, until

from agentq.coordinator.config.settings import Settings
from agentq.worker.rq.adopt.queue_bridge import JOBS_PER_SLOT

Process = subprocess.Popen[bytes]
Seen = TypeVar("Seen")
TIMES = {"heartbeat_ms": 800, "lease_ms": 4000, "reap_grace_ms": 400, "forget_ms": 4000, "tick_ms": 500}
"""A lease that runs out while a test waits: RQ's own workers and tools are told of no other end."""


class Fleet(Adoption):
    """Processes, on RQ and agentq on one server."""

    def __init__(self, server: Server, folder: Path, **settings: Any) -> None:
        super().__init__(server, Settings.model_validate({"url": server.url, **TIMES, **settings}))
        self.folder = folder
        self.processes: list[Process] = []

    @property
    def environment(self) -> dict[str, str]:
        """That of somebody who has set what the tests need, and whose jobs can be imported."""
        settings = self.settings.model_copy(update={"home": str(self.folder / "home")})
        path = {"PYTHONPATH": str(ROOT / "tests"), "RQ_REDIS_URL": self.server.url, "COLUMNS": "200"}
        return {**os.environ, **settings.to_environment(), **path}

    def start(self, *argv: str, **environment: str) -> Process:
        process = subprocess.Popen(
            argv, env=self.environment | environment, stdin=subprocess.DEVNULL, cwd=self.folder, start_new_session=True
        )
        self.processes.append(process)
        return process

    def worker_of_ours(self, *options: str, **environment: str) -> Process:
        """`agentq worker --rq default` or with other options; it is there once RQ knows it."""
        before = self.rq_workers()
        process = self.start(
            sys.executable, "-m", "agentq.cli.main", "worker", *(options or ("--rq", "default")), **environment
        )
        until(lambda: self.rq_workers() - before, "the worker to be known to RQ", 30)
        return process

    def rq_workers(self) -> set[str]:
        found: Any = self.client.smembers("rq:workers")
        return {key.decode() for key in found}

    def rq(self, *argv: str, **environment: str) -> str:
        """What `rq` prints."""
        done = subprocess.run(
            [sys.executable, "-m", "rq.cli", *argv],
            env=self.environment | environment,
            capture_output=True,
            text=True,
            cwd=self.folder,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def begin_rq(self, *argv: str, **environment: str) -> Process:
        """`rq`, going on by itself."""
        return self.start(sys.executable, "-m", "rq.cli", *argv, **environment)

    def agentq(self, *argv: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "agentq.cli.main", *argv],
            env=self.environment,
            capture_output=True,
            text=True,
            cwd=self.folder,
            timeout=60,
        )

    def info(self, **environment: str) -> dict[str, Any]:
        """What `rq info` tells: jobs by queue, workers by name with their states."""
        text = self.rq("info", "--raw", **environment)
        queues = {name: int(count) for name, count in re.findall(r"^queue (\S+) (\d+)", text, re.MULTILINE)}
        workers = dict(re.findall(r"^worker (\S+) \([^)]*\) (\S+)", text, re.MULTILINE))
        return {"queues": queues, "workers": workers, "text": text}

    def ended(self, *jobs: Job, timeout_s: float = 30) -> list[JobStatus]:
        """Wait until jobs have ended; how."""
        over = {JobStatus.FINISHED, JobStatus.FAILED, JobStatus.STOPPED, JobStatus.CANCELED}
        until(
            lambda: all(job.get_status() in over for job in jobs),
            f"{[job.get_status() for job in jobs]} to end",
            timeout_s,
        )
        return [job.get_status() for job in jobs]

    def until_traced(self, *traces: str, timeout_s: float = 30) -> None:
        until(lambda: set(traces) <= set(self.traces()), f"{traces}", timeout_s)

    def backlog(self) -> tuple[list[str], int]:
        """The jobs that RQ itself has in its list, the next one first, and how many wait in the lane."""
        return self.queue().job_ids, self.lanes().waiting()

    def until_full(self) -> None:
        """Wait until a worker with one job in hand and more than enough to do has as many as it may."""
        until(
            lambda: self.lanes().held() + self.lanes().waiting() >= JOBS_PER_SLOT,
            "as many to be taken in as there is room for",
        )

    def unmoved(self, seen: Callable[[], Seen]) -> tuple[Seen, tuple[list[str], int]]:
        """Look while the backlog does not change; what is seen, and the backlog.

        A full worker that claims one more while its inbox counts takes in one more than there is room for.
        """
        while True:
            before = self.backlog()
            view = seen()
            if self.backlog() == before:
                return view, before

    def close(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.terminate()
        for process in self.processes:
            try:
                process.wait(timeout=60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
