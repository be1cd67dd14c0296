"""Runs that work in worktrees: a crew, a repository, and what the two have come to."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from crew import Crew
from servers import Server, until
from worker.workspace.depot import ALONE, Depot

from agentq.coordinator.explanation import Explanation
from agentq.coordinator.life import Run
from agentq.coordinator.logs import Logs
from agentq.coordinator.run import RunSpec
from agentq.coordinator.workspace import Work

PATIENT = {"heartbeat_ms": 1_000, "lease_ms": 8_000, "reap_grace_ms": 1_000, "forget_ms": 4_000, "tick_ms": 1_000}


class Yard:
    """See above. The depot stands on `main`; the work goes to `work`, made from it."""

    def __init__(
        self, make_crew: Callable[..., Crew], server: Server, folder: Path, depot: Depot, **given: object
    ) -> None:
        self.crew = make_crew(server, namespace=folder.name, **given)
        self.depot = depot
        self.home = self.crew.folder / "home"
        self.told = folder / "told"
        """Where scripts leave a word."""
        self.told.touch()

    def worker(self, environment: dict[str, str] | None = None, **options: Any) -> subprocess.Popen[bytes]:
        return self.crew.worker(environment={**ALONE, **(environment or {})}, **options)

    def submit(self, script: str, *, name: str | None = None, **fields: Any) -> str:
        """A shell script in a worktree; what is not a run's is its workspace's."""
        own = {key: fields.pop(key) for key in list(fields) if key in RunSpec.model_fields}
        workspace = {"repository": str(self.depot.path), "base": "main", "target": "work", **fields}
        workspace = {key: value for key, value in workspace.items() if value is not None}
        spec = {"kind": "command", "argv": ["sh", "-ec", script], "name": name or script[:40], "workspace": workspace}
        return self.crew.queue.submit(RunSpec.model_validate({**spec, **own}, strict=False)).id

    def done(self, *runs: str, timeout_ms: int = 40_000) -> list[Run]:
        self.crew.wait(list(runs), timeout_ms)
        return [self.crew.records.get(run) for run in runs]

    def run(self, script: str, **fields: Any) -> Run:
        return self.done(self.submit(script, **fields))[0]

    def log(self, run: str) -> str:
        """All that is in its log."""
        return "".join(entry.text for entry in Logs(self.crew.queue.store).read(run))

    def why(self, run: str) -> str:
        return " ".join(Explanation(self.crew.queue.store, self.crew.settings).of(run)[1])

    def reaches(self, run: str, state: str) -> None:
        until(lambda: self.crew.state(run) == state, f"{run} to be {state}", 40)

    def commits(self, branch: str = "work") -> list[str]:
        """The titles of what is in a branch and not in `main`, newest first."""
        told = self.depot.git("log", "--format=%s", f"main..{branch}")
        return told.split("\n") if told else []

    def delivered(self, branch: str = "work") -> list[str]:
        """The runs whose work is in a branch, oldest first: once for each commit."""
        form = "%(trailers:key=Agentq-Run,valueonly,separator=%x20)"
        return self.depot.git("log", "--reverse", f"--format={form}", f"main..{branch}").split()

    def hears(self, word: str) -> None:
        """Wait until a script has left a word."""
        until(lambda: word in self.told.read_text().split(), f"the word {word}", 40)

    def lines(self) -> list[str]:
        """The merge lines in which somebody stands."""
        return list(self.crew.queue.store.connection.command("KEYS", "*:merge:*"))


def work(run: Run) -> Work:
    """What it delivered."""
    assert run.outcome is not None
    assert run.outcome.work is not None, run.outcome
    return run.outcome.work
