"""Conversations on disk, as real agents store them: one file of JSON lines each."""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class TranscriptFile:
    """One file. Each line is a prompt, an answer, or the total spending so far."""

    def __init__(self, file: Path) -> None:
        self.file = file

    @property
    def id(self) -> str:
        return self.file.stem

    def lines(self) -> list[dict[str, Any]]:
        """All lines; an incomplete last line, left by a crash, is ignored."""
        if not self.file.exists():
            return []
        complete = self.file.read_text(encoding="utf-8").rpartition("\n")[0]
        return [json.loads(line) for line in complete.splitlines()]

    def prompts(self) -> list[str]:
        return [line["message"]["content"] for line in self.lines() if line["type"] == "user"]

    def totals(self) -> Mapping[str, float]:
        """The total spending."""
        totals = [line["totals"] for line in self.lines() if line["type"] == "totals"]
        return totals[-1] if totals else {}

    def add(self, kind: str, **fields: object) -> None:
        """Append a line atomically."""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        line = json.dumps({"type": kind, "sessionId": self.id, **fields}, ensure_ascii=False) + "\n"
        with self.file.open("a", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(line)

    def copy(self, other: TranscriptFile) -> None:
        """Copy the lines of another file."""
        for line in other.lines():
            self.add(**{**line, "kind": line["type"], "sessionId": self.id})


def folder_slug(folder: str) -> str:
    """The name of a folder in Claude's project directory."""
    return re.sub(r"[^A-Za-z0-9]", "-", folder)


def claude_home() -> Path:
    """Claude's configuration directory."""
    return Path(os.environ.get("CLAUDE_CONFIG_DIR") or Path.home() / ".claude")


def codex_home() -> Path:
    """Codex's configuration directory."""
    return Path(os.environ.get("CODEX_HOME") or Path.home() / ".codex")
