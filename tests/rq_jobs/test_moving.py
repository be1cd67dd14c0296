"""The guide that moves an RQ project over, done as it says, step by step: nothing of it is left out here."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from rq_jobs.fleet import Fleet
from support.generated_docs import ROOT

pytestmark = pytest.mark.full("an RQ project is moved with all its programs")

GUIDE = ROOT / "worker/agentq/worker/rq/MOVING.md"
FENCE = re.compile(r"^```(\w+)(?: (\w+)=(\S+))?\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass
class Piece:
    """A fenced piece of the guide."""

    step: str
    kind: str
    option: str
    name: str
    text: str


def pieces() -> Iterator[Piece]:
    for section in re.split(r"^## ", GUIDE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        step = section.partition("\n")[0]
        for match in FENCE.finditer(section):
            yield Piece(step, match[1], match[2] or "", match[3] or "", match[4])


class Project:
    """A folder in which the guide is followed."""

    def __init__(self, fleet: Fleet, folder: Path) -> None:
        self.fleet = fleet
        self.folder = folder
        self.background: dict[str, subprocess.Popen[bytes]] = {}
        programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        own = {"PATH": programs, "PYTHONPATH": str(folder), "DEPLOY": str(ROOT / "deploy")}
        self.environment = fleet.environment | own

    def run(self, script: str) -> str:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=90,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def begin(self, name: str, script: str) -> None:
        process = subprocess.Popen(
            ["bash", "-c", f"exec {script}"], cwd=self.folder, env=self.environment, start_new_session=True
        )
        self.fleet.processes.append(process)
        self.background[name] = process
        (self.folder / f"{name}.pid").write_text(str(process.pid))

    def end(self, name: str, number: signal.Signals) -> None:
        self.background[name].send_signal(number)
        self.background[name].wait(timeout=60)


def matches(expected: str, said: str) -> bool:
    pattern = re.escape(expected.rstrip("\n")).replace("…", ".*")
    return re.fullmatch(pattern, "\n".join(line.rstrip() for line in said.strip().splitlines())) is not None


@pytest.mark.timeout(300)
def test_an_rq_project_is_moved_over_step_by_step_and_back(fleet: Fleet, tmp_path: Path) -> None:
    project = Project(fleet, tmp_path)
    every = list(pieces())
    for piece in every:
        if piece.kind == "python":
            (tmp_path / piece.name).write_text(piece.text)
    said = ""
    for piece in every:
        if piece.kind == "text":
            assert matches(piece.text, said), f"{piece.step}: {said!r} is not {piece.text!r}"
        elif piece.kind == "sh" and piece.option == "background":
            project.begin(piece.name, piece.text.strip())
        elif piece.kind == "sh":
            if piece.option in ("stop", "kill"):
                project.end(piece.name, signal.SIGTERM if piece.option == "stop" else signal.SIGKILL)
            said = project.run(piece.text)
