"""A person with a repository, a plan and `agentq run`: real processes, real git, agents that ask no model."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from support.crew import LASTING
from support.processes import send
from support.repositories import ALONE, Depot
from support.servers import Server, until

from agentq.coordinator.config.settings import Settings
from agentq.coordinator.plans.verbs import PlanRecord, Plans, TaskRecord
from agentq.coordinator.runs.queries import RunQueries
from agentq.coordinator.runs.verbs import RunVerbs
from agentq.worker.process import procfs


class Desk:
    """A person's machine: a home, a repository, a server, and what was typed."""

    def __init__(self, folder: Path, url: str | None) -> None:
        self.folder = folder
        self.depot = Depot(folder / "depot")
        self.depot.commit("begin", a__txt="a\n")
        self.home = folder / "home"
        self.home.mkdir()
        (self.home / "gitconfig").write_text("[user]\n\tname = Ada\n\temail = ada@example.org\n")
        self.url = url
        self.namespace = folder.name
        self.programs: list[subprocess.Popen[str]] = []
        self.times: dict[str, int] = dict(LASTING)
        self.coordinator: dict[str, str] = {}

    @property
    def variables(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("AGENTQ_", "GIT_"))}
        times = {f"AGENTQ_{name.upper()}": str(value) for name, value in self.times.items()}
        own = {"HOME": str(self.home), "XDG_DATA_HOME": str(self.home), "CLAUDE_CONFIG_DIR": str(self.home / "agents")}
        own["GIT_CONFIG_GLOBAL"] = str(self.home / "gitconfig")
        where = self.coordinator or ({"AGENTQ_URL": self.url} if self.url else {})
        return {**kept, **ALONE, **times, **own, **where, "AGENTQ_NAMESPACE": self.namespace}

    def use_coordinator(self, url: str, token: str, queue: RunVerbs) -> None:
        """Reach a coordinator from now on, and nothing else; `queue` is for what the test looks at behind it."""
        self.coordinator = {"AGENTQ_URL": url, "AGENTQ_TOKEN": token}
        self.__dict__["queue"] = queue

    def plan(self, text: str) -> None:
        """The plan of this test, in the repository's checkout, beside what is committed."""
        (self.depot.path / "plan.yaml").write_text(text)

    def begin(self, *words: str, **more: Any) -> subprocess.Popen[str]:
        """`agentq` with these words, in the checkout."""
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more}
        argv = [sys.executable, "-m", "agentq.cli.main", *words]
        program = subprocess.Popen(argv, cwd=self.depot.path, env=self.variables, text=True, **streams)
        self.programs.append(program)
        return program

    def say(self, *words: str, code: int = 0) -> str:
        """What it says on stdout; its exit code is as expected."""
        program = self.begin(*words)
        out, err = program.communicate(timeout=90)
        assert program.returncode == code, f"{words}: {program.returncode}\n{out}\n{err}"
        return out

    def run(self, *words: str, code: int = 0) -> dict[str, Any]:
        """Carry the plan out; the summary."""
        said: dict[str, Any] = json.loads(self.say("run", "plan.yaml", "--workers", "2", "--json", *words, code=code))
        return said

    def log(self) -> str:
        """A file that tasks write to, beside the repository, when they begin."""
        path = self.folder / "log"
        return path.read_text() if path.exists() else ""

    def began(self, task: str) -> int:
        """How often a task has begun."""
        return self.log().split().count(task)

    # ---- what the server has

    @cached_property
    def queue(self) -> RunVerbs:
        from agentq.coordinator.storage.embedded import EmbeddedServer

        url = self.url or EmbeddedServer(self.home / "agentq" / "server").find()
        return RunVerbs.open(Settings.model_validate({"url": url, "namespace": self.namespace, **self.times}))

    def newest(self) -> PlanRecord | None:
        found, _ = Plans(self.queue).ls(limit=1)
        return found[0] if found else None

    def tasks(self) -> dict[str, TaskRecord]:
        plan = self.newest()
        return {} if plan is None else {task.id: task for task in Plans(self.queue).all_tasks(plan.id)}

    def waits_for(self, task: str, state: str) -> None:
        """Until a task of the newest plan is in a state."""
        until(lambda: self.tasks().get(task, None) and self.tasks()[task].state == state, f"{task} to be {state}", 60)

    def records(self) -> RunQueries:
        return RunQueries(self.queue.store)

    def workers(self) -> list[int]:
        """The processes of workers that `agentq run` has started."""
        return [one.pid for one in procfs.list_own_processes() if self._is_ours(one.pid)]

    def _is_ours(self, pid: int) -> bool:
        own = procfs.read_environment(pid, "HOME").get("HOME") == str(self.home)
        try:
            return own and b"agentq.cli.plans.local_worker" in Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            return False

    # ---- what must be true

    def check(self, *tasks: str, target: str) -> None:
        """Each of these tasks is exactly one commit of the target, and nothing else is; no checkout was touched."""
        commits = self.depot.git(
            "log", "--format=%(trailers:key=Agentq-Run,valueonly,separator=%x2C)", f"main..{target}"
        )
        by_task = {task.run: name for name, task in self.tasks().items()}
        assert sorted(by_task[run] for run in commits.split()) == sorted(tasks)
        assert self.depot.git("status", "--porcelain") == "?? plan.yaml"
        assert self.depot.git("symbolic-ref", "--short", "HEAD") == "main"

    def close(self) -> None:
        for program in self.programs:
            if program.poll() is None:
                program.kill()
            program.communicate()
        send(signal.SIGTERM, self.workers())
        until(lambda: not self.workers(), "the workers to end", 60)


MORTAL = {"heartbeat_ms": 1000, "lease_ms": 5000, "reap_grace_ms": 500, "forget_ms": 5000, "tick_ms": 1000}
"""For a plan whose worker is killed: its lease runs out while the test waits."""


@pytest.fixture
def make_desk(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Desk]]:
    """Makes a desk; all that it has started ends with the test."""
    for name, value in ALONE.items():
        monkeypatch.setenv(name, value)
    desks: list[Desk] = []

    def make(server: Server | None = None) -> Desk:
        desks.append(Desk(folder, server.url if server else None))
        return desks[-1]

    yield make
    for desk in desks:
        desk.close()
        if desk.url is None:
            from agentq.coordinator.storage.embedded import EmbeddedServer

            EmbeddedServer(desk.home / "agentq" / "server").stop()


@pytest.fixture
def desk(make_desk: Callable[..., Desk], valkey: Server) -> Desk:
    """A desk with a server that is there already."""
    return make_desk(valkey)
