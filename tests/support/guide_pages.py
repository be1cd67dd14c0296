"""Guides that a test follows: files to write, commands to run, and what these print."""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from string import Template

FENCE = re.compile(r"^```(\w+)(?: (\w+)=(\S+))?\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass
class Piece:
    """A fenced piece of a guide."""

    step: str
    kind: str
    option: str
    name: str
    text: str


def pieces(text: str) -> Iterator[Piece]:
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        step = section.partition("\n")[0]
        for match in FENCE.finditer(section):
            yield Piece(step, match[1], match[2] or "", match[3] or "", match[4])


def matches(expected: str, said: str) -> bool:
    """Whether something was said as a guide has it, in which `…` stands for anything."""
    pattern = re.escape(expected.rstrip("\n")).replace("…", ".*")
    return re.fullmatch(pattern, "\n".join(line.rstrip() for line in said.strip().splitlines())) is not None


class Follower:
    """A folder in which a guide is followed."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self.folder = folder
        self.environment = dict(environment)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def follow(self, text: str) -> None:
        """Do all of it, in its order; an `export` holds for what comes after it."""
        every = list(pieces(text))
        for piece in every:
            if piece.option == "file":
                path = self.folder / piece.name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(piece.text)
        said = ""
        for piece in every:
            if piece.kind == "text":
                assert matches(piece.text, said), f"{piece.step}: {said!r} is not {piece.text!r}"
            elif piece.kind == "sh" and piece.option == "background":
                self.begin(piece.name, piece.text.strip())
            elif piece.kind == "sh":
                if piece.option in ("stop", "kill"):
                    self.end(piece.name, signal.SIGTERM if piece.option == "stop" else signal.SIGKILL)
                said = self.run(piece.text)

    def run(self, script: str) -> str:
        for name, value in re.findall(r"^export (\w+)=(\S+)$", script, re.MULTILINE):
            self.environment[name] = Template(value).substitute(self.environment)
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
        self.processes[name] = subprocess.Popen(
            ["bash", "-c", f"exec {script}"], cwd=self.folder, env=self.environment, start_new_session=True
        )
        (self.folder / f"{name}.pid").write_text(str(self.processes[name].pid))

    def end(self, name: str, number: signal.Signals) -> None:
        self.processes[name].send_signal(number)
        self.processes[name].wait(timeout=60)

    def close(self) -> None:
        """End what the guide has left."""
        for process in self.processes.values():
            if process.poll() is None:
                process.terminate()
                process.wait(timeout=60)
