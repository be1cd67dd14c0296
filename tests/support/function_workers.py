"""Crews whose runs are functions, those of `support.functions`, which note down what they do."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from support.crew import Crew

from agentq.coordinator.model.spec import Outcome, RunSpec
from agentq.coordinator.runs.logs import Logs


class OutcomeFields(NamedTuple):
    """An outcome, without what it may leave out."""

    class_: str
    error: str
    tail: str
    result: Any


class End(NamedTuple):
    """A run that is over."""

    id: str
    state: str
    attempt: int
    progress: Any
    outcome: OutcomeFields


class Callers(Crew):
    """See `Crew`."""

    def begin(
        self, url: str | None = None, environment: Mapping[str, str] | None = None, **options: object
    ) -> subprocess.Popen[bytes]:
        ours = {"PYTHONPATH": str(Path(__file__).parent.parent), "EFFECTS_FILE": str(self.effects_file)}
        return super().begin(url, {**ours, **(environment or {})}, **options)

    def call(self, name: str, *args: Any, **fields: Any) -> str:
        """Submit a call of a function of `support.functions`; returns the run's id."""
        return self.queue.submit(self.spec(name, *args, **fields)).id

    def spec(self, name: str, *args: Any, **fields: Any) -> RunSpec:
        return RunSpec.checked(kind="function", function=f"support.functions:{name}", args=args, **fields)

    def ended(self, run: str, timeout_ms: int = 60_000) -> End:
        """How a run has ended, once it has."""
        found = self.outcomes.wait(run, timeout_ms)
        outcome = found.outcome or Outcome()
        told = OutcomeFields(outcome.class_, outcome.error or "", outcome.tail or "", outcome.result)
        return End(run, found.state, found.attempt, found.progress, told)

    def log(self, run: str) -> str:
        return "".join(entry.text for entry in Logs(self.queue.store).read(run))

    def pids(self, what: str = "begin") -> dict[str, int]:
        """In which process each run did this the last time."""
        lines = [line.split() for line in self.effects_file.read_text().splitlines()]
        return {words[1]: int(words[3]) for words in lines if words[0] == what}

    def children(self, worker: subprocess.Popen[bytes]) -> list[int]:
        """The live children of a worker, for functions or whatever else."""
        found: list[int] = []
        for thread in os.listdir(f"/proc/{worker.pid}/task"):
            found += map(int, Path(f"/proc/{worker.pid}/task/{thread}/children").read_text().split())
        return found
