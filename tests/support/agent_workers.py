"""Workers that run the fake agent, in a folder of the test."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.crew import Crew
from support.servers import Server, until

from agentq.coordinator.explain.run import RunExplanation
from agentq.coordinator.model.agent_events import AnyAgentEvent, parse_agent_event
from agentq.coordinator.model.agent_options import AgentTurnOptions
from agentq.coordinator.model.spec import AgentOutcome, RunSpec
from agentq.coordinator.runs.logs import Logs
from agentq.coordinator.runs.run_record import RunRecord
from agentq.coordinator.sessions.verbs import Sessions


class Agents:
    """Workers with the fake agent, its folder and its conversations."""

    def __init__(self, make_crew: Callable[..., Crew], server: Server, folder: Path, **settings: object) -> None:
        self.crew = make_crew(server, namespace=folder.name, **settings)
        self.folder = folder / "work"
        self.folder.mkdir()
        self.home = folder / "agents"
        self.config = folder / "config"
        self.sessions = Sessions(self.crew.queue.store)

    def repository(self) -> None:
        """Make its folder one, with one commit."""
        author = ("-c", "user.name=T", "-c", "user.email=t@example.com")
        (self.folder / "there").write_text("before\n")
        for words in (("init", "-q"), ("add", "-A"), (*author, "commit", "-qm", "x")):
            subprocess.run(["git", *words], cwd=self.folder, check=True, capture_output=True)

    def worker(self, environment: dict[str, str] | None = None, **options: Any) -> subprocess.Popen[bytes]:
        """One more; what its agents know is in a folder of this test's."""
        own = {"CLAUDE_CONFIG_DIR": str(self.home), "XDG_CONFIG_HOME": str(self.config)}
        return self.crew.worker(environment={**own, **(environment or {})}, **options)

    def configure(self, text: str) -> None:
        """What the user's own settings say, for workers that begin from now on."""
        (self.config / "agentq").mkdir(parents=True)
        (self.config / "agentq" / "config.toml").write_text(text)

    def why(self, run: str) -> str:
        """What `agentq why` says."""
        return " ".join(RunExplanation(self.crew.queue.store, self.crew.settings).of(run)[1])

    def submit(self, *lines: str, agent: str = "standin", turn: dict[str, Any] | None = None, **fields: Any) -> str:
        """Ask the agent to do what these lines say."""
        how = {"turn": AgentTurnOptions.model_validate(turn)} if turn else {}
        fields = {"cwd": str(self.folder), "stop_grace_ms": 1_000, **how, **fields}
        return self.crew.queue.submit(RunSpec.checked(kind="agent", agent=agent, prompt="\n".join(lines), **fields)).id

    def done(self, run: str, timeout_ms: int = 60_000) -> RunRecord:
        """The run, once it has ended."""
        self.crew.wait([run], timeout_ms)
        return self.crew.records.get(run)

    def run(self, *lines: str, **fields: Any) -> RunRecord:
        """Ask, and wait for the end."""
        return self.done(self.submit(*lines, **fields))

    def reaches(self, run: str, state: str, within_s: float = 60) -> RunRecord:
        """The run, once it is in a state."""
        until(lambda: self.crew.state(run) == state, f"{run} to be {state}", within_s)
        return self.crew.records.get(run)

    def log(self, run: str, stream: str) -> str:
        """All that its log has of a stream."""
        return "".join(entry.text for entry in Logs(self.crew.queue.store).read(run) if entry.stream == stream)

    def agent_events(self, run: str) -> list[AnyAgentEvent]:
        """What the agent did."""
        return [parse_agent_event(line) for line in self.log(run, "event").splitlines()]

    def said(self, run: str) -> list[str]:
        """What the agent said."""
        return [doing.text for doing in self.agent_events(run) if doing.type == "text"]

    def until_said(self, run: str, text: str) -> None:
        """Wait until the agent has said something."""
        until(lambda: any(text in each for each in self.said(run)), f"the agent to say {text!r}", 60)


def word(run: RunRecord) -> AgentOutcome:
    """What the outcome says of the agent."""
    assert run.outcome is not None
    assert run.outcome.agent is not None, run.outcome
    return run.outcome.agent
