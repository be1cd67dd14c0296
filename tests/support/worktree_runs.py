"""Runs that work in worktrees: a crew, a repository, and what the two have come to."""

from __future__ import annotations

import subprocess
from typing import Any

from support.crew import Crew
from support.repositories import ALONE, Depot
from support.servers import until

from agentq.coordinator.explain.run import RunExplanation
from agentq.coordinator.model.spec import RunSpec
from agentq.coordinator.model.workspace import DeliveredWork
from agentq.coordinator.runs.logs import Logs
from agentq.coordinator.runs.run_record import RunRecord


class Yard:
    """See above. The depot stands on `main`; the work goes to `work`, made from it."""

    def __init__(self, crew: Crew, depot: Depot) -> None:
        self.crew = crew
        self.depot = depot
        self.home = crew.folder / "home"
        self.told = depot.path.with_name(f"{depot.path.name}-told")
        """Where scripts leave a word."""
        self.told.touch()

    def worker(self, environment: dict[str, str] | None = None, **options: Any) -> subprocess.Popen[bytes]:
        return begin(self.crew, environment, **options)

    def submit(self, script: str, *, name: str | None = None, **fields: Any) -> str:
        """A shell script in a worktree; what is not a run's is its workspace's."""
        return self._submit({"kind": "command", "argv": ["sh", "-ec", script], "name": name or script[:40]}, fields)

    def submit_agent(self, *lines: str, hint: str | None = None, **fields: Any) -> str:
        """The stand-in, in a worktree; somebody may have a hint for it."""
        return self._submit({"kind": "agent", "agent": "standin", "prompt": "\n".join(lines)}, fields, hint)

    def _submit(self, spec: dict[str, Any], fields: dict[str, Any], hint: str | None = None) -> str:
        own = {key: fields.pop(key) for key in list(fields) if key in RunSpec.model_fields}
        workspace = {"repository": str(self.depot.path), "base": "main", "target": "work", **fields}
        workspace = {key: value for key, value in workspace.items() if value is not None}
        made = RunSpec.model_validate({**spec, "workspace": workspace, **own}, strict=False)
        if hint is None:
            return self.crew.queue.submit(made).id
        run = self.crew.queue.submit(made.model_copy(update={"delay_ms": 200})).id
        self.crew.queue.signal(run, "hint", f"here is one:\n{hint}")
        return run

    def done(self, *runs: str, timeout_ms: int = 60_000) -> list[RunRecord]:
        self.crew.wait(list(runs), timeout_ms)
        return [self.crew.records.get(run) for run in runs]

    def run(self, script: str, **fields: Any) -> RunRecord:
        return self.done(self.submit(script, **fields))[0]

    def log(self, run: str) -> str:
        """All that is in its log."""
        return "".join(entry.text for entry in Logs(self.crew.queue.store).read(run))

    def why(self, run: str) -> str:
        return " ".join(RunExplanation(self.crew.queue.store, self.crew.settings).of(run)[1])

    def reaches(self, run: str, state: str) -> None:
        until(lambda: self.crew.state(run) == state, f"{run} to be {state}", 60)

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
        until(lambda: word in self.told.read_text().split(), f"the word {word}", 60)

    def lines(self) -> list[str]:
        """The merge lines in which somebody stands."""
        return list(
            self.crew.queue.store.connection.command("KEYS", f"agentq:{{{self.crew.settings.namespace}}}:merge_queue:*")
        )


def begin(crew: Crew, environment: dict[str, str] | None = None, **options: Any) -> subprocess.Popen[bytes]:
    """One more worker; what its agents know is in the crew's folder."""
    own = {"CLAUDE_CONFIG_DIR": str(crew.folder / "agents"), "XDG_CONFIG_HOME": str(crew.folder / "config")}
    return crew.worker(environment={**ALONE, **own, **(environment or {})}, **options)


def work(run: RunRecord) -> DeliveredWork:
    """What it delivered."""
    assert run.outcome is not None
    assert run.outcome.work is not None, run.outcome
    return run.outcome.work
