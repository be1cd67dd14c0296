"""Joins an answer that arrives in small pieces to whole messages."""

from __future__ import annotations

from agentq.coordinator.model.agent_events import TextEvent, truncate_text
from agentq.worker.agents.formats.safe_values import cut_answer


class MessageBuffer:
    """The model's answer since it was last asked, and its part not sent yet."""

    def __init__(self) -> None:
        self.answer = ""
        self._unsent = ""

    def add(self, text: str) -> None:
        self.answer = cut_answer(self.answer + text)
        self._unsent = cut_answer(self._unsent + text)

    def reset(self) -> None:
        """The next text is another answer."""
        self.answer = ""

    def take_unsent(self) -> list[TextEvent]:
        """The unsent pieces, as one."""
        untold, self._unsent = self._unsent, ""
        return [TextEvent(text=truncate_text(untold))] if untold.strip() else []
