"""Any program: each line of its output is something that it says, and its exit code is its last word."""

from __future__ import annotations

from collections.abc import Iterable

from agentq.coordinator.doings import Doing, Said, cut
from agentq.worker.agents.formats.values import clean, one_line
from agentq.worker.agents.reading import Before, Facts
from agentq.worker.agents.verdicts import VerdictKind

_KEPT_CHARACTERS = 16 << 10


class TextReader:
    """One attempt's. What it answered is the end of what it said."""

    def __init__(self, before: Before) -> None:
        self.facts = Facts(model=before.model, exits={0: VerdictKind.OK})
        self._complaint = ""

    def read(self, line: str) -> Iterable[Doing]:
        line = clean(line).rstrip()
        if not line:
            return []
        self.facts.told = True
        self.facts.text = f"{self.facts.text}\n{line}".lstrip("\n")[-_KEPT_CHARACTERS:]
        return [Said(text=cut(line))]

    def read_error(self, line: str) -> Iterable[Doing]:
        if line.strip():
            self._complaint = one_line(clean(line), 600)
        return []

    def ended(self) -> None:
        self.facts.error = self.facts.error or self._complaint
