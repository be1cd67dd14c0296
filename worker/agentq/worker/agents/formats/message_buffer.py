"""An answer that comes in pieces of a few letters, and is told in whole messages."""

from __future__ import annotations

from agentq.coordinator.model.agent_events import TextEvent, truncate_text
from agentq.worker.agents.formats.safe_values import cut_answer


class MessageBuffer:
    """What the model has said since it was last asked, and what of that has not been told yet."""

    def __init__(self) -> None:
        self.answer = ""
        self._unsent = ""

    def add(self, text: str) -> None:
        self.answer = cut_answer(self.answer + text)
        self._unsent = cut_answer(self._unsent + text)

    def reset(self) -> None:
        """What follows is another answer."""
        self.answer = ""

    def take_unsent(self) -> list[TextEvent]:
        """The pieces so far, as one."""
        untold, self._unsent = self._unsent, ""
        return [TextEvent(text=truncate_text(untold))] if untold.strip() else []
