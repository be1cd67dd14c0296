"""Namespaces with no network but the stub models: whoever joins them can reach these, and nobody else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from support.requirements import unshared

PORT = 8399
URL = f"http://127.0.0.1:{PORT}"


class Sealed:
    """One such place; it lasts as long as its stub."""

    def __init__(self, folder: Path) -> None:
        self.record = folder / "asked.jsonl"
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> Sealed:
        """Make it, and wait until the stub listens in it."""
        stub = [sys.executable, "-m", "agentq.testing.fake_models", "--sealed", "--port", str(PORT)]
        self.process = subprocess.Popen(
            [*unshared(), *stub, "--record", str(self.record)], stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline().startswith("The stub models listen")
        return self

    def stop(self) -> None:
        """End the stub; the namespace goes with the last process in it."""
        if self.process is not None:
            self.process.terminate()
            self.process.communicate(timeout=20)

    def joined(self, *argv: str, folder: Path) -> list[str]:
        """What runs a program in there, in that folder. The process that is started becomes the program."""
        assert self.process is not None
        words = ["nsenter", f"--target={self.process.pid}", "--net", "--mount", f"--wdns={folder}"]
        return [*words, *([] if os.geteuid() == 0 else ["--user", "--preserve-credentials"]), *argv]

    def asked(self) -> list[dict[str, Any]]:
        """What the stub was asked so far."""
        return [json.loads(line) for line in self.record.read_text().splitlines()] if self.record.exists() else []
