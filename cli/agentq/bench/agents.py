"""Measures a turn of an agent through agentq, beside the same process started bare, for `agentq bench`.

The stand-in needs nothing. Claude Code is measured as well where it is installed: with a key, a home and a model
service that are made up for this, so that it costs nothing and nobody's conversations are touched.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from statistics import median
from uuid import uuid4

from agentq.bench.throughput import BenchFigure, time_call
from agentq.bench.worker_throughput import WorkerBench, read_resident_bytes
from agentq.coordinator.errors import AgentqError
from agentq.coordinator.model.agent_options import AgentTurnOptions
from agentq.coordinator.model.lifecycle import State
from agentq.coordinator.model.spec import RunSpec
from agentq.coordinator.runs.end_waiter import RunEndWaiter
from agentq.worker.agents.profiles.command_line import AgentCommand, AgentLaunch, build_command
from agentq.worker.agents.profiles.registry import ProfileRegistry

TURN_MS_MAX = 50
GROWTH_MIB_MAX = 15
WAIT_MS = 60_000
AGENT_SCRIPT = "WRITE greeting.txt hello\nRUN cat greeting.txt\nSAY done"
STUB_COMMAND = (sys.executable, "-m", "agentq.testing.fake_models", "--port", "0")


@dataclass(frozen=True, slots=True)
class AgentScale:
    """How much of everything."""

    turns: int = 30
    real_turns: int = 10


AGENTS_QUICK = AgentScale(turns=3, real_turns=1)


class AgentBench:
    """One server, and one worker process on it."""

    def __init__(self, scale: AgentScale, workers: WorkerBench) -> None:
        self.scale = scale
        self.workers = workers
        self.queue = workers.queue
        self.folder = workers.folder / "agents"
        self.folder.mkdir()

    def figures(self) -> Iterator[BenchFigure]:
        """Every figure, one after the other."""
        yield from self.standin()
        if shutil.which("claude"):
            with _run_stub() as url:
                yield from self.claude(url)

    def standin(self) -> Iterator[BenchFigure]:
        return self.turns(
            "standin", AGENT_SCRIPT, self.scale.turns, {"CLAUDE_CONFIG_DIR": str(self.folder / "standin")}
        )

    def claude(self, url: str) -> Iterator[BenchFigure]:
        home = self.folder / "home"
        home.mkdir()
        made_up = {"HOME": str(home), "CLAUDE_CONFIG_DIR": str(home / "claude"), "ANTHROPIC_API_KEY": "made-up"}
        quiet = {"ANTHROPIC_BASE_URL": url, "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
        return self.turns("claude", "SCN:tool", self.scale.real_turns, {**made_up, **quiet})

    def turns(self, agent: str, prompt: str, turns: int, env: dict[str, str]) -> Iterator[BenchFigure]:
        """What a turn takes longer than its process, each in turn; and what the worker has grown by all of them."""
        ours, bare = list[float](), list[float]()
        spec = RunSpec(kind="agent", agent=agent, prompt=prompt, turn=AgentTurnOptions(), cwd=str(self.folder), env=env)
        with self.workers.worker(1) as worker, closing(RunEndWaiter(self.queue.store)) as outcomes:
            self._one(outcomes, RunSpec(kind="command", argv=("true",)))
            resident = read_resident_bytes(worker.pid)
            for _ in range(turns):
                bare.append(time_call(lambda: self._bare(agent, prompt, env)))
                ours.append(time_call(lambda: self._one(outcomes, spec)))
            grown = read_resident_bytes(worker.pid) - resident
        more_ms = 1e3 * (median(ours) - median(bare))
        found = f"{median(ours) * 1e3:,.0f} ms, the process by itself {median(bare) * 1e3:,.0f} ms"
        yield BenchFigure(f"a turn of {agent}, beside its process", found, more_ms, "ms", most=TURN_MS_MAX)
        found = f"after {turns} turns"
        yield BenchFigure(f"a worker's memory for {agent}", found, grown / 2**20, "MiB", most=GROWTH_MIB_MAX)

    def _one(self, outcomes: RunEndWaiter, spec: RunSpec) -> None:
        run = self.queue.submit(spec).id
        outcomes.wait_all([run], WAIT_MS)
        ended = self.workers.records.get(run)
        if ended.state is not State.COMPLETED:
            why = ended.outcome.error if ended.outcome else None
            raise AgentqError(f"A run of the bench ended as {ended.state}: {why or 'without a reason'}")

    def _bare(self, agent: str, prompt: str, env: dict[str, str]) -> None:
        """The same program with the same prompt, started bare."""
        launch = _build_launch(agent, prompt)
        done = subprocess.run(
            launch.argv, input=launch.stdin, cwd=self.folder, env={**os.environ, **launch.env, **env},
            capture_output=True,
        )  # fmt: skip
        if done.returncode:
            raise AgentqError(f"{agent} by itself failed: {done.stderr.decode(errors='replace').strip()[-400:]}")


def _build_launch(agent: str, prompt: str) -> AgentCommand:
    profile = ProfileRegistry.load().get(agent)
    return build_command(
        AgentLaunch(agent=agent, profile=profile, prompt=prompt, session=str(uuid4()) if profile.takes_id else None)
    )


@contextmanager
def _run_stub() -> Iterator[str]:
    """The address of a stub model service, as long as it is needed."""
    with subprocess.Popen(STUB_COMMAND, stdout=subprocess.PIPE, text=True) as stub:
        assert stub.stdout is not None
        try:
            yield stub.stdout.readline().split()[-1]
        finally:
            stub.terminate()
