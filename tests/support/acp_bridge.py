"""The bridge as a process, in front of agents of the tests' own, and what it tells."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.servers import until

from agentq.coordinator.model.agent_events import parse_agent_event

AGENT = Path(__file__).with_name("acp_agent.py")


@dataclass(frozen=True)
class BridgeOutput:
    """What a bridge told, and how it ended."""

    code: int
    agent_events: list[dict[str, Any]]
    facts: dict[str, Any]
    err: str

    def of(self, type_: str) -> list[dict[str, Any]]:
        return [doing for doing in self.agent_events if doing["type"] == type_]


class Scene:
    """A folder where an agent works and is remembered."""

    def __init__(self, folder: Path) -> None:
        self.cwd, self.kept, self.log = folder / "work", folder / "kept", folder / "log"
        self.cwd.mkdir()
        self.kept.mkdir()

    def scripted(self, able: str = "") -> list[str]:
        """The agent that does what its prompt says."""
        return [sys.executable, str(AGENT), "--kept", str(self.kept), "--log", str(self.log), "--able", able]

    def start(self, agent: list[str], *options: str, env: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
        argv = [sys.executable, "-m", "agentq.worker.agents.acp", *options, "--", *agent]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(argv, cwd=self.cwd, env={**os.environ, **(env or {})}, **pipes)  # type: ignore[call-overload,no-any-return]

    def turn(self, prompt: str, *options: str, able: str = "", env: dict[str, str] | None = None) -> BridgeOutput:
        """A whole turn of the scripted agent."""
        return told(self.start(self.scripted(able), *options, env=env), prompt)

    def against(self, program: str, *options: str) -> BridgeOutput:
        """A whole turn of an agent that is this Python program."""
        return told(self.start([sys.executable, "-c", program], *options), "do it")

    def asked(self, method: str) -> list[dict[str, Any]]:
        """What the scripted agent was asked, of one kind."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [about for about in map(json.loads, lines) if about["method"] == method]


def told(bridge: subprocess.Popen[bytes], prompt: str | None) -> BridgeOutput:
    """All that it tells; every doing has to be one that our reader knows."""
    out, err = bridge.communicate(prompt.encode() if prompt is not None else None, timeout=60)
    agent_events: list[dict[str, Any]] = []
    facts: dict[str, Any] = {}
    for line in out.splitlines():
        about = json.loads(line)
        if about.pop("type") == "facts":
            facts |= about
        else:
            parse_agent_event(line.decode())
            agent_events.append(json.loads(line))
    return BridgeOutput(bridge.returncode, agent_events, facts, err.decode())


@contextmanager
def scene() -> Iterator[Scene]:
    with tempfile.TemporaryDirectory(prefix="aq") as folder:
        yield Scene(Path(folder).resolve())


def processes_in(folder: Path) -> list[int]:
    """Those whose working folder this is."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if Path(os.readlink(entry / "cwd")) == folder:
                    found.append(int(entry.name))
            except OSError:  # it is gone, or not ours
                continue
    return found


def nobody_is_left(folder: Path) -> None:
    until(lambda: not processes_in(folder), "the last process to go")
