"""Any program: each line of its output is text, and its exit code is its result."""

from __future__ import annotations

from collections.abc import Iterable

from agentq.coordinator.model.agent_events import AgentEvent, TextEvent, truncate_text
from agentq.worker.agents.formats.safe_values import clean_line, cut_line
from agentq.worker.agents.reader import AgentFacts, PriorConversation
from agentq.worker.agents.verdicts import VerdictKind

_KEPT_CHARACTERS = 16 << 10


class TextReader:
    """Reads the output of one attempt. Its answer is the end of its output."""

    def __init__(self, before: PriorConversation) -> None:
        self.facts = AgentFacts(model=before.model, exits={0: VerdictKind.OK})
        self._complaint = ""

    def read(self, line: str) -> Iterable[AgentEvent]:
        line = clean_line(line).rstrip()
        if not line:
            return []
        self.facts.has_output = True
        self.facts.text = f"{self.facts.text}\n{line}".lstrip("\n")[-_KEPT_CHARACTERS:]
        return [TextEvent(text=truncate_text(line))]

    def read_error(self, line: str) -> Iterable[AgentEvent]:
        if line.strip():
            self._complaint = cut_line(clean_line(line), 600)
        return []

    def finish(self) -> None:
        self.facts.error = self.facts.error or self._complaint
